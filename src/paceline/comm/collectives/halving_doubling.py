"""halving_doubling: partners at half the distance exchange half as much, then the same backwards.

    5 ranks: 4 is the largest power of two, rank 4 is surplus

    fold       4 ─▶ 0                          rank 0 takes rank 4's numbers in
    halve      0 ⇄ 2   1 ⇄ 3                   each sends the half it gives up: n/2
               0 ⇄ 1   2 ⇄ 3                   of what is left: n/4; now each has a quarter, complete
    double     0 ⇄ 1   2 ⇄ 3                   the quarters: n/4
               0 ⇄ 2   1 ⇄ 3                   the halves: n/2
    unfold     0 ─▶ 4

Cost, n elements on p ranks: with p a power of two each rank sends 2·log2(p) messages, 2n(p-1)/p elements in
all: the bytes of a ring with far fewer hops. Otherwise surplus ranks send n and receive n besides, two hops.
Every element is combined by exactly one rank, along one fixed tree, and sent: the same bits everywhere.
Needs n/2 of memory; bfloat16 and float16 travel as float32 on the way down.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.comm.collectives._point_to_point import Arithmetic, PointToPoint
from paceline.comm.world import World


class HalvingDoubling(PointToPoint):
    """Few hops and few bytes: the best compromise for medium tensors."""

    def __init__(self, world: World, *, link: str = "torch_p2p") -> None:
        super().__init__(world, link=link)
        self._power = 1 << (self.size.bit_length() - 1)  # the largest power of two that is not above p

    def _all_reduce_(self, flat: Tensor, arithmetic: Arithmetic) -> None:
        surplus = self.rank + self._power  # the rank that folds into this one, if there is one
        if self.rank >= self._power:
            self.link.send(flat, self.rank - self._power)
            self.link.recv(flat, self.rank - self._power)
            return
        total = arithmetic.begin(flat)
        if surplus < self.size:
            theirs = torch.empty_like(flat)
            self.link.recv(theirs, surplus)
            arithmetic.combine_(total, theirs)
        self._double(flat, self._halve(total, flat, arithmetic))
        if surplus < self.size:
            self.link.send(flat, surplus)

    def _halve(self, total: Tensor, flat: Tensor, arithmetic: Arithmetic) -> list[tuple[int, int, int]]:
        """Down to the part that this rank completes in `flat`; returns the ranges that were halved."""
        low, high = 0, flat.numel()
        incoming = total.new_empty((high + 1) // 2)
        halved = []
        distance = self._power // 2
        while distance:
            halved.append((low, high, distance))
            middle = (low + high + 1) // 2
            keep, give = (low, middle), (middle, high)
            if self.rank & distance:
                keep, give = give, keep
            kept, got = total[slice(*keep)], incoming[: keep[1] - keep[0]]
            partner = self.rank ^ distance
            self.link.exchange(total[slice(*give)], partner, got, partner)
            arithmetic.combine_(kept, got)
            low, high = keep
            distance //= 2
        arithmetic.finish(total[low:high], flat[low:high])
        return halved

    def _double(self, flat: Tensor, halved: list[tuple[int, int, int]]) -> None:
        """Back up: partners swap what they have, received into place."""
        for low, high, distance in reversed(halved):
            middle = (low + high + 1) // 2
            mine, theirs = flat[low:middle], flat[middle:high]
            if self.rank & distance:
                mine, theirs = theirs, mine
            partner = self.rank ^ distance
            self.link.exchange(mine, partner, theirs, partner)

    def all_gather(self, flat: Tensor) -> Tensor:
        """Doubling, for any p, log2(p) hops: row i is that of rank + i until the end."""
        rows = torch.empty(self.size, *flat.shape, dtype=flat.dtype, device=flat.device)
        rows[0] = flat
        have = 1
        while have < self.size:
            more = min(have, self.size - have)
            below, above = (self.rank - have) % self.size, (self.rank + have) % self.size
            self.link.exchange(rows[:more], below, rows[have : have + more], above)
            have += more
        return rows.roll(self.rank, 0)

    def _broadcast_(self, flat: Tensor, src: int) -> None:
        """A tree: whoever has it sends it on, twice as many in every one of log2(p) hops."""
        place = (self.rank - src) % self.size
        distance = 1
        while distance < self.size:
            if place < distance and place + distance < self.size:
                self.link.send(flat, (self.rank + distance) % self.size)
            elif distance <= place < 2 * distance:
                self.link.recv(flat, (self.rank - distance) % self.size)
            distance *= 2
