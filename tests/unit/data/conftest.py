"""A cache for each test, and a tiny MNIST in the official format with checksums that fit."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from paceline.data.definition import File
from paceline.data.sets.mnist import Mnist
from tiny_mnist import Tiny, idx

TRAIN, TEST = 50, 20


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PACELINE_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Tiny:
    rng = np.random.default_rng(0)
    arrays = []
    for count in (TRAIN, TEST):
        arrays += [rng.integers(0, 256, (count, 28, 28)), rng.integers(0, 10, count)]
    folder = tmp_path / "root" / "mnist"
    folder.mkdir(parents=True)
    files = []
    for published, array in zip(Mnist.layouts[0], arrays, strict=True):
        content = gzip.compress(idx(array), mtime=0)
        (folder / published.name).write_bytes(content)
        files.append(File(published.name, hashlib.md5(content).hexdigest(), len(content)))
    monkeypatch.setattr(Mnist, "layouts", (tuple(files),))
    monkeypatch.setattr(Mnist, "train_size", TRAIN)
    monkeypatch.setattr(Mnist, "test_size", TEST)
    return Tiny(folder.parent, [folder / file.name for file in files], arrays)
