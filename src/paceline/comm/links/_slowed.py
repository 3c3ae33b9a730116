"""A link as slow as you like: latency and bandwidth of a network card that the ranks of one machine lack.

    torch_p2p@1ms           every message takes 1 ms longer
    torch_p2p@1ms/100mbit   and this rank's card passes 100 Mbit/s in each direction

    send     wait until the card has passed it on (one message after the other), then really send
    recv     really receive, then until the card would have taken it in, then the latency

Both directions at once, as cards do. A rank that many send to is as slow as its one card. Sleeps are at least
50 µs too long, so microseconds of latency cannot be had.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence

from torch import Tensor

from paceline.comm.links._base import Link, Message
from paceline.comm.world import World
from paceline.errors import ConfigError
from paceline.registry import LINKS

_FORM = re.compile(r"(?:(?P<ms>\d+(?:\.\d+)?)ms)?/?(?:(?P<mbit>\d+(?:\.\d+)?)mbit)?")


def make_link(name: str, world: World) -> Link:
    """A link by its name, slowed where the name says so."""
    name, _, speed = name.partition("@")
    slowness = parse_speed(speed) if speed else None
    link: Link = LINKS.make(name, world)
    return link if slowness is None else Slowed(link, *slowness)


def parse_speed(text: str) -> tuple[float, float]:
    """Seconds of latency, and bytes a second (0: any number)."""
    match = _FORM.fullmatch(text)
    if not match or not text.strip("/"):
        raise ConfigError(f"link speed {text!r} is not such as 1ms, 100mbit or 1ms/100mbit")
    return float(match["ms"] or 0) / 1e3, float(match["mbit"] or 0) * 1e6 / 8


class _Card:
    """One direction of a network card: bytes pass one after the other."""

    def __init__(self, bytes_per_second: float) -> None:
        self._speed = bytes_per_second
        self._free = 0.0
        self._lock = threading.Lock()

    def out(self, nbytes: int) -> None:
        """Return when they have passed, counted from now or from when the card is free."""
        with self._lock:
            self._free = max(time.monotonic(), self._free) + self._seconds(nbytes)
            until = self._free
        _sleep_until(until)

    def into(self, nbytes: int) -> None:
        """Return when they have passed; they came at the sender's pace, so alone they do so now."""
        with self._lock:
            self._free = max(time.monotonic(), self._free + self._seconds(nbytes))
            until = self._free
        _sleep_until(until)

    def _seconds(self, nbytes: int) -> float:
        return nbytes / self._speed if self._speed else 0.0


class Slowed:
    """A link that does what another does, later."""

    def __init__(self, inner: Link, latency: float, bytes_per_second: float) -> None:
        self.rank = inner.rank
        self.size = inner.size
        self._inner = inner
        self._latency = latency
        self._out, self._in = _Card(bytes_per_second), _Card(bytes_per_second)

    def send(self, x: Tensor, dst: int) -> None:
        self._out.out(x.nbytes)
        self._inner.send(x, dst)

    def recv(self, out: Tensor, src: int) -> None:
        self._inner.recv(out, src)
        self._arrived(out.nbytes)

    def exchange(self, x: Tensor, dst: int, out: Tensor, src: int) -> None:
        self._out.out(x.nbytes)
        self._inner.exchange(x, dst, out, src)
        self._arrived(out.nbytes)

    def exchange_all(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        self._out.out(sum(x.nbytes for x, _ in sends))
        self._inner.exchange_all(sends, receives)
        if receives:
            self._arrived(sum(out.nbytes for out, _ in receives))

    def close(self) -> None:
        self._inner.close()

    def _arrived(self, nbytes: int) -> None:
        if nbytes:
            self._in.into(nbytes)
            time.sleep(self._latency)


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)
