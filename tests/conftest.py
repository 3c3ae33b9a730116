"""What all tests share: a cache of their own, one thread a process, and the real data where it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine may stop a test for a second in the middle of an example.
settings.register_profile("paceline", deadline=None)
settings.load_profile("paceline")

REPOSITORY = Path(__file__).resolve().parent.parent

# Before torch or numpy is imported, here and in every process a test starts.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

# `nohup` and `command &` start a process with signals ignored, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Nothing is read from or written to the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["PACELINE_CACHE"] = str(folder)
    os.environ["PACELINE_AUTO_SECONDS"] = "0.1"  # collectives are measured for a test, not for use
    os.environ.pop("PACELINE_DATA", None)
    return folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Files without a folder land in the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """A folder with the official MNIST files in mnist/ (PACELINE_TEST_DATA, or beside the repository)."""
    for folder in (os.environ.get("PACELINE_TEST_DATA"), REPOSITORY.parent / "shared" / "data"):
        if folder and (Path(folder) / "mnist" / "train-images-idx3-ubyte.gz").exists():
            return Path(folder)
    pytest.skip("no real data sets here: set PACELINE_TEST_DATA to a folder that holds mnist/")


@pytest.fixture(scope="session")
def zygote():
    """Runs functions in real ranks (tests/zygote.py)."""
    from zygote import Zygote

    with Zygote() as running:
        yield running
