"""Where files are looked for, and what is said when they are not there."""

from __future__ import annotations

import shutil

import pytest

from paceline.data.sets.mnist import Mnist
from paceline.data.sources import cache_folder, locate, verify
from paceline.errors import DataError


def found_in(name="mnist", root=None):
    return locate(name, Mnist(), root)[0].path.parent


def test_the_order_is_root_then_variable_then_cache(tiny, tmp_path, cache, monkeypatch):
    shutil.copytree(tiny.root, cache / "data")
    assert found_in() == cache / "data" / "mnist"
    shutil.copytree(tiny.root, tmp_path / "variable")
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "variable"))
    assert found_in() == tmp_path / "variable" / "mnist"
    assert found_in(root=tiny.root) == tiny.root / "mnist"
    shutil.rmtree(tiny.root / "mnist")
    assert found_in(root=tiny.root) == tmp_path / "variable" / "mnist"


def test_files_directly_in_the_root(tiny, monkeypatch):
    assert found_in(root=tiny.root / "mnist") == tiny.root / "mnist"
    with pytest.raises(DataError, match="fashion_mnist: no train-images"):
        found_in("fashion_mnist", tiny.root / "mnist")  # the same names, another set
    monkeypatch.setattr(Mnist, "own_folder", False)
    assert found_in("anything", tiny.root / "mnist") == tiny.root / "mnist"


def test_nothing_there(tmp_path):
    with pytest.raises(DataError) as caught:
        found_in(root=tmp_path)
    line = str(caught.value)
    assert line.startswith("mnist: no train-images-idx3-ubyte.gz in ")
    assert "run `paceline data fetch mnist`, or name the folder with --data-root or PACELINE_DATA" in line
    assert str(cache_folder() / "data" / "mnist") in line


def test_one_file_missing(tiny):
    tiny.files[3].unlink()
    with pytest.raises(DataError, match=rf"mnist: {tiny.files[3]} is missing \(1 of 4 files\)"):
        found_in(root=tiny.root)


def test_a_named_root_that_holds_a_part_is_not_passed_over(tiny, tmp_path, monkeypatch):
    shutil.copytree(tiny.root, tmp_path / "variable")
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "variable"))
    tiny.files[3].unlink()
    with pytest.raises(DataError, match=rf"mnist: {tiny.files[3]} is missing \(1 of 4 files\)"):
        found_in(root=tiny.root)
    assert found_in() == tmp_path / "variable" / "mnist"


def test_a_root_that_is_no_folder():
    with pytest.raises(DataError, match="--data-root /no/such is not a folder"):
        found_in(root="/no/such")


def test_verdicts(tiny):
    tiny.files[1].write_bytes(b"other")
    official, other, *_ = verify(locate("mnist", Mnist(), tiny.root))
    assert official.official
    assert str(official) == "train-images-idx3-ubyte.gz is the published file"
    assert not other.official
    published = Mnist.layouts[0][1]
    assert str(other) == (
        "train-labels-idx1-ubyte.gz is not the official file (5 bytes, md5 795f3202b17cb6bc3d4b771d8c6c9eaf; "
        f"published {published.size} bytes, md5 {published.md5})"
    )


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("PACELINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "paceline"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "paceline"
