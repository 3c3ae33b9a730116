"""Comparing the speed of things fairly: interleaved rounds, medians, intervals free of any distribution.

    round 1:  a b c     round 2:  b c a     round 3:  c a b    …   each meets the same quiet and busy minutes

A machine's speed drifts by a factor of 2 within minutes, so two blocks run one after the other cannot be
compared; one round's neighbours can. Hence also `ratio`: the quotient within each round, then the median of
the quotients. The interval is that of the order statistics: the true median lies between the k-th smallest
and the k-th largest of n values with probability 1 - 2·P(Binomial(n, 1/2) < k), whatever the values'
distribution.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Samples = tuple[float, ...]  # seconds (or quotients), in the order in which they were measured


@dataclass(frozen=True)
class Interval:
    """A median and the interval that holds the true one with probability `confidence`."""

    median: float
    low: float
    high: float
    n: int
    confidence: float

    def as_json(self) -> dict[str, float]:
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "confidence": self.confidence,
        }


def interleave(
    cases: Mapping[str, Callable[[], object]],
    repeats: int,
    *,
    before: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Samples]:
    """Seconds of each case in each round; rounds begin in turn. `before` runs untimed before each case."""
    names = list(cases)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(repeats):
        first = round_ % max(1, len(names))
        for name in names[first:] + names[:first]:
            before()
            start = clock()
            cases[name]()
            seconds[name].append(clock() - start)
    return {name: tuple(values) for name, values in seconds.items()}


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Samples:
    """The quotient of two cases in each round."""
    return tuple(a / b for a, b in zip(numerator, denominator, strict=True))


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """Median and distribution-free interval; fewer than 6 values give the widest there is."""
    if len(samples) == 0:
        raise ValueError("the median of no values")
    values, n = sorted(samples), len(samples)
    k, covered = 1, _coverage(1, n)  # the k-th smallest and the k-th largest are the ends
    chosen, below = math.comb(n, 1), 1 + n  # C(n, k), and the sum of C(n, 0) to C(n, k)
    while 2 * (k + 1) <= n and _coverage(below, n) >= confidence:
        covered = _coverage(below, n)
        k += 1
        chosen = chosen * (n - k + 1) // k
        below += chosen
    return Interval(statistics.median(values), values[k - 1], values[n - k], n, covered)


def _coverage(below: int, n: int) -> float:
    """Whole numbers until the last division: 2 ** n is no float for more than 1,024 values."""
    share: float = below / 2 ** (n - 1)
    return max(0.0, 1.0 - share)
