"""mnist: 70,000 handwritten digits, 28×28 grey (LeCun, Cortes, Burges). Four IDX .gz files, 11 MB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.data.definition import Arrays, DataSet, File
from paceline.data.idx import read_idx

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)


def _file(name: str, md5: str, size: int) -> File:
    return File(name, md5, size, tuple(mirror + name for mirror in _MIRRORS))


class Mnist(DataSet):
    """Official split: 60,000 train, 10,000 test."""

    shape = (1, 28, 28)
    classes = 10
    train_size = 60_000
    test_size = 10_000
    own_folder = True  # fashion_mnist has files of the same names
    layouts = (
        (
            _file("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            _file("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            _file("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            _file("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
    )

    def read(self, paths: Sequence[Path]) -> Arrays:
        train_images, train_labels, test_images, test_labels = (read_idx(path) for path in paths)
        return Arrays(train_images[:, None], train_labels, test_images[:, None], test_labels)
