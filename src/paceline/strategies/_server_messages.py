"""What a trainer and a server send each other: as many numbers as there are parameters, and a stamp.

push   [ gradient   … | kind    | version | learning rate of each group ]
pull   [ parameters … | piece   | version | – ]

kind     PUSH   a gradient: make an update, answer with the parameters
         IDLE   nothing left to do: answer when there is (a lost trainer's piece), or never will be (NOTHING)
         END    the epoch is over: no answer

The stamp is 8 bytes and 4 a group, in the bits of the message's own elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PUSH, END, IDLE = range(3)
NOTHING = -1
"""A piece that says that there is none."""
_WORDS = 2


class Message:
    """One buffer, used again and again."""

    def __init__(self, length: int, groups: int, dtype: torch.dtype) -> None:
        words = _WORDS + groups
        begin = -(-length * dtype.itemsize // 4)  # in words of 4 bytes
        self.flat = torch.zeros(-(-(begin + words) * 4 // dtype.itemsize), dtype=dtype)
        self.values = self.flat[:length]
        self._words = self.flat.view(torch.uint8)[: (begin + words) * 4].view(torch.int32)[begin:]
        self._rates = self._words[_WORDS:].view(torch.float32)

    @property
    def kind(self) -> int:
        """PUSH, IDLE or END."""
        return int(self._words[0])

    @property
    def piece(self) -> int:
        """The piece of the epoch that the receiver takes next."""
        return int(self._words[0])

    @property
    def version(self) -> int:
        """How many updates the parameters had seen."""
        return int(self._words[1])

    @property
    def rates(self) -> list[float]:
        """Learning rates of the groups."""
        return list(self._rates.tolist())

    def stamp(self, first: int, version: int, rates: Sequence[float] = ()) -> Tensor:
        """Write the stamp; returns the whole message."""
        self._words[0] = first
        self._words[1] = version
        if rates:
            self._rates.copy_(torch.tensor(rates, dtype=torch.float32))
        return self.flat
