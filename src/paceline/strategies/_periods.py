"""When replicas agree: every K steps, or at the end of an epoch, after a cautious beginning.

steps      1 1 1 1 1 1 | 2  4  8 | 16    16    16 …
           synchronous  warm-up    sync_every

Pure arithmetic: every rank counts for itself and comes to the same steps.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from paceline.errors import ConfigError

_APART, _TOGETHER = 1.0, 0.25  # drift above: halve the period; below: double it


def parse_period(owner: str, value: int | str) -> int | None:
    """Steps of a round; None: an epoch."""
    if value == "epoch":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ConfigError(f'{owner}: sync_every = {value!r} must be a number of steps or "epoch"')


class Period:
    """Counts steps; says which of them ends a round."""

    def __init__(self, every: int | None, synchronous: int, warmup_rounds: int, *, adaptive: bool) -> None:
        if synchronous < 0 or warmup_rounds < 0:
            raise ConfigError("synchronous_steps and warmup_rounds must be at least 0")
        self.adaptive = adaptive
        self.since = 0
        """Steps since the replicas last agreed."""
        self._every = every
        self._synchronous = synchronous
        self._warmup_rounds = warmup_rounds
        self._steps = 0
        self._rounds = 0  # after the synchronous beginning
        self._now = every
        self._lengths: Counter[int] = Counter()

    @property
    def length(self) -> int | None:
        """Steps of the round that is under way; None: until the epoch ends."""
        if self._steps <= self._synchronous and self._synchronous:
            return 1
        if self._now is None or self._rounds >= self._warmup_rounds:
            return self._now
        return min(self._now, 1 << (self._rounds + 1))

    def step(self) -> bool:
        """One more step was made; does the round end here?"""
        self._steps += 1
        self.since += 1
        return self.length is not None and self.since >= self.length

    def agreed(self, drift: float | None = None) -> None:
        """The replicas are the same now."""
        self._lengths[self.since] += 1
        self.since = 0
        if self._steps > self._synchronous:
            self._rounds += 1
        if drift is not None and self._now is not None and self._every is not None:
            if drift > _APART:
                self._now = max(1, self._now // 2)
            elif drift < _TOGETHER:
                self._now = min(self._every, self._now * 2)

    @property
    def lengths(self) -> dict[str, int]:
        """How many rounds had how many steps."""
        return counts(self._lengths)

    def state(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "since": self.since, "steps": self._steps, "rounds": self._rounds, "now": self._now,
            "lengths": self.lengths,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """The counterpart of state."""
        self.since, self._steps = int(state["since"]), int(state["steps"])
        self._rounds = int(state["rounds"])
        self._now = None if state["now"] is None else int(state["now"])
        self._lengths = counted(state["lengths"])


def counts(found: Counter[int]) -> dict[str, int]:
    """As it stands in a journal: keys are text there."""
    return {str(value): count for value, count in sorted(found.items())}


def counted(kept: dict[str, int]) -> Counter[int]:
    """The counterpart of counts."""
    return Counter({int(value): count for value, count in kept.items()})
