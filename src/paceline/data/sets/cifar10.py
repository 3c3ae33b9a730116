"""cifar10: 60,000 colour pictures of ten things, 32×32 (A. Krizhevsky), the binary version.

A batch file is 10,000 records of 3,073 bytes: the label, then the red, the green and the blue plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.data.archive import read_members
from paceline.data.definition import Arrays, DataSet, File
from paceline.errors import DataError

_FOLDER = "cifar-10-batches-bin"
_PIXELS = 3 * 32 * 32
_BATCHES = {  # the author publishes the archive's md5 only; these are the members' as other loaders list them
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_ARCHIVE = File(
    "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    170_052_171,
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
    ),
)


class Cifar10(DataSet):
    """Official split: 50,000 train, 10,000 test."""

    shape = (3, 32, 32)
    classes = 10
    train_size = 50_000
    test_size = 10_000
    layouts = (
        tuple(File(name, md5, 30_730_000) for name, md5 in _BATCHES.items()),
        tuple(File(f"{_FOLDER}/{name}", md5, 30_730_000) for name, md5 in _BATCHES.items()),
        (_ARCHIVE,),
    )

    def read(self, paths: Sequence[Path]) -> Arrays:
        if len(paths) == 1:
            batches = read_members(paths[0], [f"{_FOLDER}/{name}" for name in _BATCHES])
            paths = [paths[0] / name for name in _BATCHES]  # what an error message calls them
        else:
            batches = [path.read_bytes() for path in paths]
        records = [_records(path, batch) for path, batch in zip(paths, batches, strict=True)]
        train = np.concatenate(records[:-1])
        return Arrays(*_pictures(train), *_pictures(records[-1]))


def _records(path: Path, batch: bytes) -> NDArray[np.uint8]:
    if not batch or len(batch) % (1 + _PIXELS):
        raise DataError(f"{path}: {len(batch):,} bytes are no whole number of {1 + _PIXELS}-byte records")
    return np.frombuffer(batch, np.uint8).reshape(-1, 1 + _PIXELS)


def _pictures(records: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
