"""butterfly: every rank owns one chunk; all send it their pieces, it combines them and sends to all.

    rank 0  [a0 b0 c0]   ─ a0 a1 a2 ▶  rank 0: a = a0∘a1∘a2   ─ a ▶   rank 0  [a b c]
    rank 1  [a1 b1 c1]   ─ b0 b1 b2 ▶  rank 1: b = b0∘b1∘b2   ─ b ▶   rank 1  [a b c]
    rank 2  [a2 b2 c2]   ─ c0 c1 c2 ▶  rank 2: c = c0∘c1∘c2   ─ c ▶   rank 2  [a b c]
                 1. to the owners           2. combine             3. to everybody

Cost, n elements on p ranks: each rank sends 2(p-1) messages of n/p elements, as in a ring, but they wait for
each other only once: two waves instead of 2(p-1) hops. That is what counts for small tensors, and where ranks
share cores. The price: all pairs talk at once, and the owner holds everybody's pieces, one more n of memory.

Combined in rank order: the same bits as `naive`. bfloat16 and float16 never travel wider than they are.
"""

from __future__ import annotations

from torch import Tensor

from paceline.comm.collectives._point_to_point import Arithmetic, Chunks, InHalves
from paceline.comm.world import World


class Butterfly(InHalves):
    """Two waves of messages: right for small tensors and many ranks."""

    def __init__(self, world: World, *, link: str = "torch_p2p") -> None:
        super().__init__(world, link=link)
        # Beginning with the next rank: otherwise all ranks would send to rank 0 first.
        self._others = [(self.rank + i) % self.size for i in range(1, self.size)]

    def _to_owners(self, chunks: Chunks, arithmetic: Arithmetic, out: Tensor) -> None:
        """First wave: row r of `pieces` is rank r's piece of this rank's chunk."""
        mine = chunks[self.rank]
        pieces = mine.new_empty(self.size, mine.numel())
        pieces[self.rank] = mine
        self.link.exchange_all(
            [(chunks[owner], owner) for owner in self._others], [(pieces[src], src) for src in self._others]
        )
        total = arithmetic.begin(pieces[0])
        for piece in pieces[1:]:
            arithmetic.combine_(total, piece)
        arithmetic.finish(total, out)

    def _to_everybody(self, chunks: Chunks) -> None:
        """Second wave: this rank's chunk goes to all, theirs are received into place."""
        mine = chunks[self.rank]
        self.link.exchange_all(
            [(mine, dst) for dst in self._others], [(chunks[owner], owner) for owner in self._others]
        )

    def _broadcast_(self, flat: Tensor, src: int) -> None:
        """The root sends every owner its chunk; then the second wave."""
        chunks = flat.tensor_split(self.size)
        if self.rank == src:
            self.link.exchange_all([(chunks[owner], owner) for owner in self._others], [])
        else:
            self.link.recv(chunks[self.rank], src)
        self._to_everybody(chunks)
