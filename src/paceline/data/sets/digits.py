"""digits: 1,797 real handwritten digits, 8×8 grey levels 0–16, shipped inside the package (44 kB).

UCI "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak; see embedded/ATTRIBUTION.md),
resized to 28×28 so that every model for MNIST takes it:

    8×8 (0–16)  --×255/16-->  --bilinear, pixel centres aligned-->  28×28 uint8

The set has no official split; ours is a plain shuffle with a fixed seed: 1,437 train, 360 test. The file is
in order of the writers, so an unshuffled tail would test on writers never seen in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.data.definition import Arrays, DataSet, File
from paceline.data.idx import read_idx

_SIDE, _SMALL, _WHITE = 28, 8, 16


class Digits(DataSet):
    """The embedded default: works without network, files or options."""

    shape = (1, _SIDE, _SIDE)
    classes = 10
    train_size = 1437
    test_size = 360
    embedded = Path(__file__).parent / "embedded"
    layouts = (
        (
            File("digits-images-idx3-ubyte.gz", "e9635ac21c82c135ce6636a44653462c", 44_098),
            File("digits-labels-idx1-ubyte.gz", "a0dcc9b010bbbfbe546ee8af81eb2ce6", 145),
        ),
    )

    def read(self, paths: Sequence[Path]) -> Arrays:
        images = _enlarge(read_idx(paths[0]))[:, None]
        labels = read_idx(paths[1])
        # RandomState because its stream is frozen for ever; default_rng's may change with a numpy release.
        order = np.random.RandomState(1797).permutation(len(images))
        train, test = np.split(order, [self.train_size])
        return Arrays(images[train], labels[train], images[test], labels[test])


def _enlarge(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    centres = (np.arange(_SIDE) + 0.5) * _SMALL / _SIDE - 0.5
    weights: NDArray[Any] = np.stack(
        [np.interp(centres, np.arange(_SMALL), row) for row in np.eye(_SMALL)], axis=1
    )
    # einsum and not @: no BLAS thread pool is started in a process that will fork.
    large = np.einsum("yi,nij,xj->nyx", weights, images * (255 / _WHITE), weights, optimize=False)
    enlarged: NDArray[np.uint8] = np.rint(large).astype(np.uint8)
    return enlarged
