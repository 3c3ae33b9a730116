"""What a data set is: the files it is published in, the shape of what they hold, and how to read them.

    File      one published file: its name, its md5, where it can be had
    Arrays    what reading gives: uint8 pictures (N, C, H, W) and labels, train and test
    DataSet   one set = one file in `sets/`; its options are keyword-only parameters of its constructor

A set may be published in several layouts (cifar10: six .bin files, or one .tar.gz that holds them); each
layout is a tuple of files, and `read` gets the paths of the one that was found, in the order in which it is
declared. Nothing here imports torch: sets are read in the process that later forks the ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.errors import DataError


@dataclass(frozen=True)
class File:
    """One published file. `size` is 0 and `md5` is empty where nothing is published."""

    name: str
    md5: str = ""
    size: int = 0
    mirrors: tuple[str, ...] = ()


class Arrays(NamedTuple):
    """A whole data set in memory: pictures uint8 (N, C, H, W), labels any integer type (N,)."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[Any]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[Any]


class DataSet(ABC):
    """One data set. Sizes are None where any number of samples will do."""

    shape: tuple[int, int, int]
    classes: int
    train_size: int | None
    test_size: int | None
    layouts: tuple[tuple[File, ...], ...] = ()
    embedded: ClassVar[Path | None] = None  # the folder inside the package, for a set that is shipped with it
    own_folder: ClassVar[bool] = (
        False  # file names that another set uses too: never looked for outside <name>/
    )

    @abstractmethod
    def read(self, paths: Sequence[Path]) -> Arrays:
        """Read the files of one layout; raises DataError for a file that does not hold what it should."""


def check_arrays(data_set: DataSet, arrays: Arrays, where: str) -> None:
    """Shape, count and labels are what the set declares, whatever the files' checksums say."""
    parts = (
        ("train", arrays.train_images, arrays.train_labels, data_set.train_size),
        ("test", arrays.test_images, arrays.test_labels, data_set.test_size),
    )
    for part, images, labels, size in parts:
        expected = (len(labels) if size is None else size, *data_set.shape)
        if images.dtype != np.uint8 or images.shape != expected:
            found = f"{images.dtype} {images.shape}"
            raise DataError(f"{where}: the {part} pictures are {found}, expected uint8 {expected}")
        if len(labels) != len(images):
            raise DataError(f"{where}: {len(labels):,} {part} labels for {len(images):,} pictures")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < data_set.classes:
            found = f"{labels.min()} to {labels.max()}"
            raise DataError(f"{where}: {part} labels run from {found}, expected 0 to {data_set.classes - 1}")
