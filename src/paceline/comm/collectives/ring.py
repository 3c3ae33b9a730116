"""ring: every rank talks to its two neighbours only, and all of them are busy all the time.

    p chunks, chunk c belongs to rank c in the end                        3 ranks, chunks a b c

    1. reduce-scatter: p-1 hops                       rank 0        rank 1        rank 2
       a partial result of every chunk goes           c0 ───▶       a1 ───▶       b2 ───▶ (to rank 0)
       round and takes each rank's numbers in         b2+b0 ─▶      c0+c1 ─▶      a1+a2 ─▶
                                                      a1+a2+a0      b2+b0+b1      c0+c1+c2
    2. all-gather: p-1 hops
       the finished chunks go round                   a ───▶        b ───▶        c ───▶        …

Cost, n elements on p ranks: each rank sends 2(p-1) messages of n/p elements, 2n(p-1)/p in all, which is the
least that is possible; the busiest link is no busier than any other. But the 2(p-1) hops wait for each other:
where ranks share cores every hop waits for a turn of every core. Needs 2n/p of memory.
bfloat16 and float16 go round as float32 in the first half.
"""

from __future__ import annotations

from torch import Tensor

from paceline.comm.collectives._point_to_point import Arithmetic, Chunks, InHalves
from paceline.comm.world import World


class Ring(InHalves):
    """Fewest bytes: right for large tensors on ranks with a core each."""

    def __init__(self, world: World, *, link: str = "torch_p2p") -> None:
        super().__init__(world, link=link)
        self._right = (self.rank + 1) % self.size
        self._left = (self.rank - 1) % self.size

    def _to_owners(self, chunks: Chunks, arithmetic: Arithmetic, out: Tensor) -> None:
        """First half: a rank passes on what it got at the hop before, with its own taken in."""
        buffers = chunks[0].new_empty(2, chunks[0].numel(), dtype=arithmetic.partial)
        partial = arithmetic.begin(chunks[self.rank - 1])
        for hop in range(1, self.size):
            mine = chunks[(self.rank - 1 - hop) % self.size]
            incoming = buffers[hop % 2, : mine.numel()]
            self.link.exchange(partial, self._right, incoming, self._left)
            arithmetic.combine_(incoming, mine)
            partial = incoming
        arithmetic.finish(partial, out)

    def _to_everybody(self, chunks: Chunks) -> None:
        """Second half: received into place, passed on from there."""
        for hop in range(self.size - 1):
            here, behind = chunks[(self.rank - hop) % self.size], chunks[(self.rank - hop - 1) % self.size]
            self.link.exchange(here, self._right, behind, self._left)

    def _broadcast_(self, flat: Tensor, src: int) -> None:
        """In p chunks down the ring: a rank passes one on while it receives the next."""
        chunks = flat.tensor_split(self.size)
        if self.rank == src:
            for chunk in chunks:
                self.link.send(chunk, self._right)
            return
        for number in range(self.size + 1):
            receives = [(chunk, self._left) for chunk in chunks[number : number + 1]]
            sends = [(chunk, self._right) for chunk in chunks[max(0, number - 1) : number]]
            self.link.exchange_all([] if self._right == src else sends, receives)
