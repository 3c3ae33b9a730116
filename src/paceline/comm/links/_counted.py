"""Counts what goes over any link: messages and bytes that this rank sends. Cost: one Python call more."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from paceline.comm.links._base import Link, Message


class Counted:
    """A link that does what another does and counts; messages without elements are never sent."""

    def __init__(self, inner: Link) -> None:
        self.rank = inner.rank
        self.size = inner.size
        self.inner = inner
        self.messages = 0
        self.bytes = 0

    def send(self, x: Tensor, dst: int) -> None:
        self._count(x)
        self.inner.send(x, dst)

    def recv(self, out: Tensor, src: int) -> None:
        self.inner.recv(out, src)

    def exchange(self, x: Tensor, dst: int, out: Tensor, src: int) -> None:
        self._count(x)
        self.inner.exchange(x, dst, out, src)

    def exchange_all(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        for x, _ in sends:
            self._count(x)
        self.inner.exchange_all(sends, receives)

    def close(self) -> None:
        self.inner.close()

    def _count(self, x: Tensor) -> None:
        self.messages += x.numel() > 0
        self.bytes += x.nbytes
