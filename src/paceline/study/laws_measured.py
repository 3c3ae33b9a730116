"""What was measured, checked, and the numbers that follow without any law.

    speed-up          S(p) = T(1) / T(p)                          median of the repeats, 95 % interval
    efficiency        E(p) = S(p) / p
    serial fraction   e(p) = (1 / S(p) - 1 / p) / (1 - 1 / p)     Karp and Flatt
    serial share      g(p) = (p - S(p)) / (p - 1)                 its counterpart for weak scaling

Where p = 1 was not measured the smallest p is the baseline: S(p) and E(p) are relative to it, while both
serial numbers are left out, as they are defined against one rank. In weak scaling T is the time for the same
number of samples, so that S is the ratio of the throughputs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from paceline.errors import ConfigError
from paceline.study.laws_intervals import Estimate, difference, ratio

Numbers = Mapping[int, Sequence[float] | float]
SCALINGS = ("strong", "weak")
LOST_POINTS = 0.5  # per cent of accuracy below the baseline that count as lost
MOST_RANKS = 100_000  # laws are tabulated for every p up to twice the data
NEAR = 0.05  # two batches this close are meant to be the same


@dataclass(frozen=True)
class Measured:
    """Everything said about a group of runs, by p; `analyse` explains the arguments."""

    times: dict[int, tuple[float, ...]]
    declared: str | None = None
    cores: int | None = None
    accuracy: dict[int, tuple[float, ...]] = field(default_factory=dict)
    updates: dict[int, float] = field(default_factory=dict)
    batches: dict[int, float] = field(default_factory=dict)
    threads: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.times:
            raise ConfigError("no times: give at least one, such as 1=303.76 2=257.54 (ranks=seconds)")
        if self.declared is not None and self.declared not in SCALINGS:
            raise ConfigError(f"scaling {self.declared!r}: there is {' and '.join(SCALINGS)}")
        if self.cores is not None and self.cores < 1:
            raise ConfigError(f"cores {self.cores}: at least 1")

    @property
    def ranks(self) -> list[int]:
        return list(self.times)

    @property
    def baseline(self) -> int:
        return self.ranks[0]

    @property
    def several(self) -> list[int]:
        """All p but the baseline."""
        return self.ranks[1:]

    @cached_property
    def speedup(self) -> dict[int, Estimate]:
        base = self.times[self.baseline]
        rest = {p: ratio(base, self.times[p]) for p in self.several}
        return {self.baseline: Estimate(1.0, None), **rest}

    @property
    def efficiency(self) -> dict[int, float]:
        return {p: s.value * self.baseline / p for p, s in self.speedup.items()}

    @property
    def serial_fraction(self) -> dict[int, float]:
        if self.baseline != 1:
            return {}
        return {p: (1 / self.speedup[p].value - 1 / p) / (1 - 1 / p) for p in self.several}

    @property
    def serial_share(self) -> dict[int, float]:
        if self.baseline != 1:
            return {}
        return {p: (p - self.speedup[p].value) / (p - 1) for p in self.several}

    @property
    def super_linear(self) -> list[int]:
        """p whose speed-up is above the ideal, by more than its interval (without one: by more than 5 %)."""
        return [p for p in self.several if self._floor(p) > p / self.baseline]

    def _floor(self, p: int) -> float:
        value, interval = self.speedup[p]
        return interval[0] if interval else value / (1 + NEAR)

    @property
    def faster(self) -> list[int]:
        """p that are faster than the baseline, beyond the interval where there is one."""
        return [p for p, s in self.speedup.items() if (s.interval[0] if s.interval else s.value) > 1]

    @property
    def unclear(self) -> list[int]:
        """p that look faster than the baseline although their interval holds 1."""
        return [p for p, s in self.speedup.items() if s.value > 1 and p not in self.faster]

    @property
    def oversubscribed(self) -> list[int]:
        """p whose ranks have more threads than there are cores."""
        return [p for p in self.ranks if self.cores and p * self.threads.get(p, 1) > self.cores]

    @property
    def batch_scaling(self) -> str | None:
        """What the batches themselves say: strong, weak, neither, or nothing."""
        known = {p: batch for p, batch in self.batches.items() if p in self.times}
        if len(known) < 2:
            return None
        if _alike([p * batch for p, batch in known.items()]):
            return "strong"
        return "weak" if _alike(list(known.values())) else "neither"

    @property
    def scaling(self) -> str | None:
        """As declared, else as the batches say."""
        return self.declared or (self.batch_scaling if self.batch_scaling in SCALINGS else None)

    @cached_property
    def below_baseline(self) -> dict[int, Estimate]:
        """Points of accuracy (per cent) below the baseline, where it is more than LOST_POINTS."""
        if self.baseline not in self.accuracy:
            return {}
        scale = 100 if max(max(values) for values in self.accuracy.values()) <= 1 else 1
        points = {p: [scale * value for value in values] for p, values in self.accuracy.items()}
        drops = {p: difference(points[self.baseline], points[p]) for p in self.several if p in points}
        return {p: drop for p, drop in drops.items() if drop.value > LOST_POINTS}

    @property
    def lost_accuracy(self) -> dict[int, Estimate]:
        """Those drops that the repeats, where there are any, do not explain."""
        return {
            p: drop for p, drop in self.below_baseline.items() if not drop.interval or drop.interval[0] > 0
        }


def by_ranks(what: str, numbers: Numbers | None, *, zero: bool = False) -> dict[int, tuple[float, ...]]:
    """Sorted by p, every value a tuple of finite numbers above 0 (or from 0 on)."""
    kind = "0 or more" if zero else "above 0"
    found: dict[int, tuple[float, ...]] = {}
    for ranks, given in sorted((numbers or {}).items()):
        values = (float(given),) if isinstance(given, int | float) else tuple(map(float, given))
        if (
            not 1 <= ranks <= MOST_RANKS
            or not values
            or not all(0 < value < math.inf or (zero and value == 0) for value in values)
        ):
            said = ",".join(format(value, "g") for value in values)
            raise ConfigError(f"{what} {ranks}={said}: ranks are 1 to {MOST_RANKS:,}, each number {kind}")
        found[ranks] = values
    return found


def medians(what: str, numbers: Numbers | None) -> dict[int, float]:
    """Like `by_ranks`, one number for each p."""
    return {p: statistics.median(values) for p, values in by_ranks(what, numbers).items()}


def _alike(numbers: Sequence[float]) -> bool:
    return max(numbers) <= min(numbers) * (1 + NEAR)
