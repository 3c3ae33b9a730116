"""synthetic: pictures of any shape and class count, made from a seed; no file, no network.

    picture = grey + 48 × prototype of its class (4×4-pixel blocks) + 48 × noise, cut to 0…255

so there is something to learn: a linear model reaches high accuracy within an epoch, chance is 1 / classes.
Labels are balanced and shuffled. Cost: one normal number a pixel (about 1 s for the size of MNIST), made in
chunks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.data.definition import Arrays, DataSet
from paceline.errors import ConfigError

_BLOCK, _CONTRAST, _CHUNK = 4, 48.0, 2048


class Synthetic(DataSet):
    """`shape` is (channels, height, width), also as text: "3x32x32"."""

    def __init__(
        self,
        *,
        shape: Sequence[int] | str = (1, 28, 28),
        classes: int = 10,
        train: int = 2048,
        test: int = 512,
        seed: int = 0,
    ) -> None:
        self.shape = _shape(shape)
        self.classes = _whole("classes", classes, 1)
        self.train_size = _whole("train", train, 1)
        self.test_size = _whole("test", test, 1)
        self.seed = _whole("seed", seed, 0)

    def read(self, paths: Sequence[Path]) -> Arrays:
        rng = np.random.default_rng((self.seed, 0))
        channels, height, width = self.shape
        blocks = (self.classes, channels, -(-height // _BLOCK), -(-width // _BLOCK))
        coarse = rng.standard_normal(blocks, np.float32).repeat(_BLOCK, 2).repeat(_BLOCK, 3)
        prototypes = coarse[:, :, :height, :width] * _CONTRAST + 127.5
        assert self.train_size is not None and self.test_size is not None
        return Arrays(*_part(prototypes, self.train_size, rng), *_part(prototypes, self.test_size, rng))


def _part(
    prototypes: NDArray[np.float32], size: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    labels = rng.permutation(np.arange(size) % len(prototypes))
    images = np.empty((size, *prototypes.shape[1:]), np.uint8)
    for start in range(0, size, _CHUNK):
        chunk = labels[start : start + _CHUNK]
        noise = rng.standard_normal((len(chunk), *prototypes.shape[1:]), np.float32)
        images[start : start + _CHUNK] = np.clip(prototypes[chunk] + _CONTRAST * noise, 0, 255)
    return images, labels


def _shape(shape: Sequence[int] | str) -> tuple[int, int, int]:
    words = re.split(r"[x×,]", shape) if isinstance(shape, str) else shape
    try:
        channels, height, width = (int(word) for word in words)
    except (TypeError, ValueError):
        raise ConfigError(
            f"synthetic: shape is channels × height × width such as 3x32x32, got {shape!r}"
        ) from None
    return tuple(_whole("shape", side, 1) for side in (channels, height, width))  # type: ignore[return-value]


def _whole(option: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"synthetic: {option} must be a whole number of at least {least}, got {value!r}")
    return value
