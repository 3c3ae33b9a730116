"""Names are files, classes are found by rule, options are keyword-only parameters."""

from __future__ import annotations

import pytest

from paceline.errors import ConfigError
from paceline.registry import MODELS, STRATEGIES, camel, option_hints


def test_names_are_files_without_underscore():
    assert "ddp" in STRATEGIES.names()
    assert not any(name.startswith("_") for name in STRATEGIES.names())


def test_camel():
    assert [camel(n) for n in ("ddp", "local_sgd", "cifar10")] == ["Ddp", "LocalSgd", "Cifar10"]


def test_options():
    assert list(option_hints(STRATEGIES.load("ddp"))) == [
        "bucket_mb", "overlap", "buffers", "buffers_every_step", "compression"
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="strategy 'ddp' has no option 'bucket'; did you mean 'bucket_mb'"):
        STRATEGIES.check_options("ddp", {"bucket": 3})
    with pytest.raises(ConfigError, match="it takes none"):
        STRATEGIES.check_options("single", {"x": 3})
    with pytest.raises(ConfigError, match="strategy 'ddp': bucket_mb = 'x' must be a number"):
        STRATEGIES.check_options("ddp", {"bucket_mb": "x"})


def test_something_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def net(shape, classes, *, width=3): return shape, classes, width\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert MODELS.make("mine:net", (1, 2, 3), 4, options={"width": 5}) == ((1, 2, 3), 4, 5)
    for name, expected in [("mine:nt", "has no 'nt'"), ("mne:net", "cannot import 'mne'")]:
        with pytest.raises(ConfigError, match=expected):
            MODELS.load(name)
