"""Where a rank's time goes. Every moment of training belongs to exactly one phase.

        data      forward   backward   communicate   update     other
    ──┤─────────┤─────────┤──────────┤─────────────┤──────────┤───────┤──▶
     lap("data") ...                  moved out of the lap it happened in

A lap costs one clock read (about 60 ns). Communication happens inside other laps (inside backward when
it overlaps, inside the step otherwise), so its seconds are *moved* from the lap that contained them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

PHASES = ("data", "forward", "backward", "communicate", "update", "other")


class Clock:
    """Sums seconds by phase. `pause` and `resume` leave out what is not training (evaluation)."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last = time.monotonic()

    def resume(self) -> None:
        """Begin a stretch of training now; what came before belongs to nobody."""
        self._last = time.monotonic()

    def lap(self, phase: str) -> None:
        """Everything since the last lap was `phase`."""
        now = time.monotonic()
        self.seconds[phase] += now - self._last
        self._last = now

    def move(self, source: str, target: str, seconds: float) -> None:
        """`seconds` of the lap just taken were really `target`."""
        self.seconds[source] -= seconds
        self.seconds[target] += seconds

    def take(self) -> dict[str, float]:
        """The sums so far, and start again from zero."""
        taken, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return taken


@dataclass
class Meter:
    """What the collectives of one rank did: calls, bytes, exposed seconds, and when this rank arrived.

    Times are `time.monotonic`, which all processes of one node share: the reader of the journals finds who
    was waited for by comparing arrivals, so that measuring needs no message of its own.
    """

    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0
    arrived: float | None = None
    left: float | None = None
    _taken: float = field(default=0.0, repr=False)

    def add(self, arrived: float, left: float, nbytes: int) -> None:
        """One collective, from this rank's arrival to its return."""
        self.calls += 1
        self.bytes += nbytes
        self.seconds += left - arrived  # `expose`, written out: this is called in every step
        self.left = left
        if self.arrived is None:
            self.arrived = arrived

    def expose(self, arrived: float, left: float) -> None:
        """Training stood still from `arrived` to `left`."""
        self.seconds += left - arrived
        self.arrived = arrived if self.arrived is None else self.arrived
        self.left = left

    def take_seconds(self) -> float:
        """Exposed seconds since the last call of this."""
        new, self._taken = self.seconds - self._taken, self.seconds
        return new

    def take_span(self) -> tuple[float, float] | None:
        """First arrival and last return since the last call of this, if any collective ran."""
        if self.arrived is None or self.left is None:
            return None
        span = (self.arrived, self.left)
        self.arrived = self.left = None
        return span
