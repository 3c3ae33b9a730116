"""naive: rank 0 collects everything, combines it in rank order, and tells everybody. There to be read.

    rank 1 ──┐                      ┌──▶ rank 1
    rank 2 ──┼──▶ rank 0: 0∘1∘2∘3 ──┼──▶ rank 2
    rank 3 ──┘                      └──▶ rank 3

Cost, n elements on p ranks: 2(p-1) messages of n elements, one after the other, all of them through rank 0.
Everybody waits while it works; the others below spread its work over all ranks. Needs one more n on rank 0.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from paceline.comm.collectives._point_to_point import Arithmetic, PointToPoint


class Naive(PointToPoint):
    """The reference: the obvious way, right and slow."""

    candidate: ClassVar[bool] = False

    def _all_reduce_(self, flat: Tensor, arithmetic: Arithmetic) -> None:
        if self.rank == 0:
            total = arithmetic.begin(flat)
            incoming = torch.empty_like(flat)
            for src in range(1, self.size):
                self.link.recv(incoming, src)
                arithmetic.combine_(total, incoming)
            arithmetic.finish(total, flat)
        else:
            self.link.send(flat, 0)
        self._broadcast_(flat, 0)

    def _broadcast_(self, flat: Tensor, src: int) -> None:
        if self.rank != src:
            self.link.recv(flat, src)
            return
        for dst in range(self.size):
            if dst != src:
                self.link.send(flat, dst)
