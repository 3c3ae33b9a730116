"""svhn: 99,289 digits cropped from house numbers, 32×32 colour (Y. Netzer and others; non-commercial use).

Two MATLAB 5 files hold X (32, 32, 3, N) and y (N, 1), where label 10 means the digit 0. The 531,131 easier
`extra` pictures are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.data.definition import Arrays, DataSet, File
from paceline.errors import DataError

_MIRRORS = (
    "http://ufldl.stanford.edu/housenumbers/",
    "https://ufldl.stanford.edu/housenumbers/",
)


def _file(name: str, md5: str, size: int) -> File:
    return File(name, md5, size, tuple(mirror + name for mirror in _MIRRORS))


class Svhn(DataSet):
    """Official split: 73,257 train, 26,032 test."""

    shape = (3, 32, 32)
    classes = 10
    train_size = 73_257
    test_size = 26_032
    layouts = (
        (
            _file("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
            _file("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64_275_384),
        ),
    )

    def read(self, paths: Sequence[Path]) -> Arrays:
        return Arrays(*_part(paths[0]), *_part(paths[1]))


def _part(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    from scipy.io import loadmat  # 0.2 s, and only this set needs it

    try:
        content = loadmat(path, variable_names=("X", "y"))
    except (
        Exception
    ) as error:  # loadmat answers damage with whatever it stumbles over (zlib, struct, Type, …)
        raise DataError(f"{path}: not a readable MATLAB 5 file ({error}); fetch it again") from error
    images, labels = content.get("X"), content.get("y")
    if images is None or labels is None or images.ndim != 4 or images.dtype != np.uint8:
        raise DataError(f"{path}: expected X uint8 (32, 32, 3, N) and y (N, 1)")
    if labels.dtype.kind not in "ui" or (labels.size and not 1 <= labels.min() <= labels.max() <= 10):
        raise DataError(f"{path}: expected labels 1 to 10 (10 means 0)")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.reshape(-1) % 10
