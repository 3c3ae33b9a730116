"""A file is there whole or not at all."""

from __future__ import annotations

import json

import pytest

from paceline.atomic import replacing, write_json, write_text


def test_the_old_content_survives_a_failed_write(tmp_path):
    path = tmp_path / "x.json"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_reads_back_and_is_readable_by_others(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": [1, 2.5], "ö": None})
    assert json.loads(path.read_text()) == {"a": [1, 2.5], "ö": None}
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
