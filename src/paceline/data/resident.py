"""A prepared set as tensors, one physical copy for all ranks of a node.

    .npy in the page cache ──mmap (private, copy on write)──► uint8 tensor of every rank
    Part.batch(index):  index_select ► uint8 batch ──cast, (x - mean) / std──► float32 batch

Measured with one thread on arrays in memory, µs a batch of 256, MNIST's size / 32×32 colour: gather 16 /
56, with cast 25 / 96, with normalise 43 / 155. Tried and slower: a table of 256 floats (127 / 480), numpy
(51 / 331), mul and add with type promotion (53 / 203), for MNIST's size blocks of 32 pictures (83);
preallocated buffers gain nothing. Mapped or copied into memory makes no difference (best of 21: 53 and 56).

The mapping is private: a rank that wrote into it by mistake would change its own view only, never the file or
another rank. Pages stay shared until then.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.data.cache import Prepared
from paceline.errors import DataError

Index = Tensor | NDArray[np.int64]


class Part:
    """The training or the test samples: uint8 pictures (N, C, H, W) and int64 labels (N,)."""

    def __init__(
        self, images: Tensor, labels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]
    ) -> None:
        self.images = images
        self.labels = labels
        picture = images.shape[1:]  # one constant a pixel, not a channel: see normalise
        scale = [1 / (255 * s) for s in std]
        shift = [-m / s for m, s in zip(mean, std, strict=True)]
        self._scale = torch.tensor(scale).view(-1, 1, 1).expand(picture).contiguous()
        self._shift = torch.tensor(shift).view(-1, 1, 1).expand(picture).contiguous()

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of one picture."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, index: Index) -> tuple[Tensor, Tensor]:
        """The raw uint8 pictures and the labels of some samples, copied out in one go."""
        at = index if isinstance(index, Tensor) else torch.from_numpy(np.asarray(index, np.int64))
        return self.images.index_select(0, at), self.labels.index_select(0, at)

    def normalise(self, images: Tensor) -> Tensor:
        """float32, mean 0 and deviation 1 in each channel of the training part.

        (x - mean) / std is x·scale + shift: one vectorised addcmul, as long as nothing is broadcast inside a
        picture. Constants of shape (C, 1, 1) take three times as long (438 instead of 155 µs).
        """
        pixels = images.float()
        return torch.addcmul(self._shift, pixels, self._scale, out=pixels)

    def batch(self, index: Index) -> tuple[Tensor, Tensor]:
        """Normalised float32 pictures and labels of some samples (any order, repeats, none)."""
        images, labels = self.gather(index)
        return self.normalise(images), labels


class Resident:
    """Both parts of a prepared set, mapped.

    `validation`: in the place of the test part are the last so many training samples, not trained on."""

    def __init__(self, prepared: Prepared, validation: int = 0) -> None:
        self.prepared = prepared
        self.shape = prepared.shape
        self.classes = prepared.classes
        left = prepared.train_size - validation
        self.train = self._part("train", slice(0, left))
        self.test = self._part("train", slice(left, None)) if validation else self._part("test", slice(None))

    def _part(self, part: str, which: slice) -> Part:
        folder = self.prepared.folder
        images, labels = (_map(folder / f"{part}_{kind}.npy")[which] for kind in ("images", "labels"))
        return Part(images, labels, self.prepared.mean, self.prepared.std)


def _map(path: Path) -> Tensor:
    try:
        return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: the prepared set is gone or damaged ({error}); start again to prepare it"
        ) from error
