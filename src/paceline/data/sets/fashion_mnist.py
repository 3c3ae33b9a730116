"""fashion_mnist: 70,000 pictures of clothes, 28×28 grey (Zalando Research). Four IDX .gz files, 31 MB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.data.definition import Arrays, DataSet, File
from paceline.data.idx import read_idx

_MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)


def _file(name: str, md5: str, size: int) -> File:
    return File(name, md5, size, tuple(mirror + name for mirror in _MIRRORS))


class FashionMnist(DataSet):
    """Official split: 60,000 train, 10,000 test."""

    shape = (1, 28, 28)
    classes = 10
    train_size = 60_000
    test_size = 10_000
    own_folder = True  # mnist has files of the same names
    layouts = (
        (
            _file("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            _file("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            _file("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            _file("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
    )

    def read(self, paths: Sequence[Path]) -> Arrays:
        train_images, train_labels, test_images, test_labels = (read_idx(path) for path in paths)
        return Arrays(train_images[:, None], train_labels, test_images[:, None], test_labels)
