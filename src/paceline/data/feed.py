"""The batches of one seat (or of neighbouring ones), epoch after epoch.

    Order.steps ► a step's samples ──seats_slice─► this seat's ──gather──► uint8 ──augment──► normalise
                 rng(seed, epoch, position) ► draws of the whole step ──same slice──┘

Cost beyond Part.batch: about 10 µs a batch, and one permutation of the set an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paceline.data.augment import augment, check_augment, draw, parse_augment
from paceline.data.resident import Part
from paceline.data.shard import Indices, Order, seats_slice
from paceline.errors import ConfigError

Seats = Sequence[tuple[int, int]]
_AUGMENT = 1  # sets these random numbers apart from those of the order


class Batch(NamedTuple):
    """One seat's part of a step (it may be empty), and `total`, the samples of the whole step."""

    images: Tensor
    labels: Tensor
    total: int


class Feed:
    """Batches for one part and one order; `augment` is a spec such as "shift:2,flip"."""

    def __init__(self, part: Part, order: Order, *, augment: str = "", seed: int | None = None) -> None:
        if order.size != len(part):
            raise ConfigError(f"the order is for {order.size:,} samples, the part has {len(part):,}")
        self.part = part
        self.order = order
        self.spec = parse_augment(augment)
        check_augment(self.spec, part.shape)
        self.seed = order.seed if seed is None else seed
        self._shuffled: tuple[tuple[int, int], Indices] | None = None

    def epoch(
        self, epoch: int, global_batch: int, seats: Seats = ((0, 1),), position: int = 0
    ) -> Iterator[Batch]:
        """The seats' remaining batches of an epoch of which `position` samples are done."""
        for indices in self.order.steps(epoch, global_batch, position):
            yield self._batch(indices, epoch, position, seats)
            position += len(indices)

    def step(self, epoch: int, number: int, global_batch: int, seats: Seats) -> Batch:
        """The seats' part of step `number` of an epoch."""
        wanted = epoch, global_batch
        if self._shuffled is None or self._shuffled[0] != wanted:
            self._shuffled = wanted, self.order.epoch(*wanted)
        position = number * global_batch
        return self._batch(self._shuffled[1][position : position + global_batch], epoch, position, seats)

    def _batch(self, indices: Indices, epoch: int, position: int, seats: Seats) -> Batch:
        mine = seats_slice(len(indices), seats)
        images, labels = self.part.gather(indices[mine])
        if self.spec:
            rng = np.random.default_rng((self.seed, epoch, position, _AUGMENT))
            draws = draw(self.spec, len(indices), rng)[mine]
            images = torch.from_numpy(augment(images.numpy(), draws))
        return Batch(self.part.normalise(images), labels, len(indices))
