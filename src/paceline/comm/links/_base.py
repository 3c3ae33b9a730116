"""Link: moves bytes between two ranks. Everything a point-to-point collective may use.

    send(x, dst)                     returns when x may be changed again; the other side may not have it yet
    recv(out, src)                   returns when out is filled
    exchange(x, dst, out, src)       both at once: a ring of blocking sends would stand still
    exchange_all(sends, receives)    many at once: none of them waits for another

Messages between two ranks arrive in the order in which they were sent; one without elements is not sent at
all. Lengths and types on both sides must agree: a link carries no header. Every wait ends after the world's
deadline with an error that names the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

Message = tuple[Tensor, int]
"""A contiguous tensor, and the rank it goes to or comes from."""


class Link(Protocol):
    """Constructed on every rank of a world."""

    rank: int
    size: int

    def send(self, x: Tensor, dst: int) -> None:
        """Send a contiguous tensor to rank `dst`."""

    def recv(self, out: Tensor, src: int) -> None:
        """Fill a contiguous tensor with what rank `src` sent."""

    def exchange(self, x: Tensor, dst: int, out: Tensor, src: int) -> None:
        """Send `x` to `dst` while receiving `out` from `src`; also when both are the same rank."""

    def exchange_all(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """All of these at once; returns when everything is sent and everything is filled."""

    def close(self) -> None:
        """Give back what the link owns. Closing twice is harmless."""
