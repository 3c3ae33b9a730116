"""Who works on which piece of an epoch, and what becomes of the pieces of a trainer that is lost.

    pieces   0 1 2 | 3 4 5 6 7 8 …      a trainer's first is dealt, the others it takes when it is ready
                       ✗ trainer 2 dies with 5 under way ─▶ 5 is dealt again, to whoever asks next

A piece is done when its push has arrived, so every one is done once: the epoch stays complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class Pieces:
    """Of one epoch after the other; called with the server's lock held."""

    def __init__(self) -> None:
        self.dealt_again = 0
        self._next = 0
        self._held: dict[int, int] = {}
        self._returned: deque[int] = deque()

    def begin(self, trainers: Sequence[int]) -> None:
        """An epoch begins; trainer number i of these has piece i."""
        self._held = {trainer: piece for piece, trainer in enumerate(trainers)}
        self._next = len(self._held)
        self._returned.clear()

    @property
    def returned(self) -> bool:
        """Is there a piece to be dealt again?"""
        return bool(self._returned)

    def take(self, trainer: int) -> int:
        """What it had is done; this is its next one."""
        self.done(trainer)
        if self._returned:
            piece = self._returned.popleft()
        else:
            piece, self._next = self._next, self._next + 1
        self._held[trainer] = piece
        return piece

    def done(self, trainer: int) -> None:
        """It has no piece under way."""
        self._held.pop(trainer, None)

    def lose(self, trainer: int) -> None:
        """It is gone; what it had under way is dealt again."""
        if trainer in self._held:
            self._returned.append(self._held.pop(trainer))
            self.dealt_again += 1
