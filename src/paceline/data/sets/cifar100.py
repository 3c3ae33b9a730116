"""cifar100: 60,000 colour pictures of a hundred things, 32×32 (A. Krizhevsky), as Python pickles.

Each pickle is a dictionary; `data` is uint8 (N, 3072), red, green and blue plane, `fine_labels` are 0 to
99. With `partial=True` the files `train.partial` and `test.partial` of the same format are read instead,
with any number of pictures: for trying the reader, not for results. Nothing is published to check them
against, so they also need --allow-unverified.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.data.archive import read_members
from paceline.data.definition import Arrays, DataSet, File
from paceline.data.pickles import read_pickle
from paceline.errors import DataError

_FOLDER = "cifar-100-python"
_TRAIN_MD5 = "16019d7e3df5f24257cddd939b257f8d"
_TEST_MD5 = "f0ef6b0ae62326f3e7ffdfab6717acfc"
_ARCHIVE = File(
    "cifar-100-python.tar.gz",
    "eb9058c3a382ffc7106e4002c42a8d85",
    169_001_437,
    (
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-100-python.tar.gz",
    ),
)


class Cifar100(DataSet):
    """Official split: 50,000 train, 10,000 test."""

    shape = (3, 32, 32)
    classes = 100

    def __init__(self, *, partial: bool = False) -> None:
        self.train_size = None if partial else 50_000
        self.test_size = None if partial else 10_000
        if partial:
            names = (f"{_FOLDER}/train.partial", f"{_FOLDER}/test.partial")
            self.layouts = (
                tuple(File(name) for name in names),
                tuple(File(Path(name).name) for name in names),
            )
        else:
            self.layouts = (
                (File(f"{_FOLDER}/train", _TRAIN_MD5), File(f"{_FOLDER}/test", _TEST_MD5)),
                (File("train", _TRAIN_MD5), File("test", _TEST_MD5)),
                (_ARCHIVE,),
            )

    def read(self, paths: Sequence[Path]) -> Arrays:
        if len(paths) == 1:
            pickles = read_members(paths[0], [f"{_FOLDER}/train", f"{_FOLDER}/test"])
            paths = [paths[0] / "train", paths[0] / "test"]  # what an error message calls them
        else:
            pickles = [path.read_bytes() for path in paths]
        return Arrays(*_part(paths[0], pickles[0]), *_part(paths[1], pickles[1]))


def _part(path: Path, pickled: bytes) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    content = read_pickle(io.BytesIO(pickled), path)
    pixels, labels = content.get("data"), content.get("fine_labels")
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.ndim != 2
        or pixels.shape[1] != 3072
    ):
        raise DataError(f"{path}: expected an array `data` of uint8 (N, 3072)")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{path}: expected a list `fine_labels` of whole numbers")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, np.int64)
