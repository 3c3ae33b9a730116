"""What repeated measurements say: a ratio or a difference with its 95 % interval.

    ratio       equal counts      repeat i over repeat i (an interleaved study runs them next to each
                                  other, so the machine's slow changes cancel); t on the log ratios
                unequal counts    ratio of the medians; Welch's t on the logarithms
    difference  Welch's t on the values

The estimate is a median, so that one disturbed repeat does not move it. Times scatter by a factor and not by
a number of seconds, hence the logarithms. With one measurement on a side there is no interval: None.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats

Interval = tuple[float, float]
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A number and the interval around it."""

    value: float
    interval: Interval | None


def ratio(over: Sequence[float], under: Sequence[float]) -> Estimate:
    """How many times `under` goes into `over`; both hold positive numbers."""
    if len(over) == len(under):
        ratios = [a / b for a, b in zip(over, under, strict=True)]
        middle = statistics.median(ratios)
        around = _student([math.log(r) for r in ratios])
    else:
        middle = statistics.median(over) / statistics.median(under)
        around = _welch([math.log(x) for x in over], [math.log(x) for x in under])
    return Estimate(middle, around and _containing(middle, (math.exp(around[0]), math.exp(around[1]))))


def difference(left: Sequence[float], right: Sequence[float]) -> Estimate:
    """How much larger `left` is than `right`."""
    middle = statistics.median(left) - statistics.median(right)
    around = _welch(left, right)
    return Estimate(middle, around and _containing(middle, around))


def quantile(freedom: float) -> float:
    """Student's t that 95 % of the draws stay within."""
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))


def _student(values: Sequence[float]) -> Interval | None:
    if len(values) < 2:
        return None
    half = quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def _welch(left: Sequence[float], right: Sequence[float]) -> Interval | None:
    if min(len(left), len(right)) < 2:
        return None
    a, b = (statistics.variance(side) / len(side) for side in (left, right))
    centre = statistics.fmean(left) - statistics.fmean(right)
    if a + b == 0:
        return centre, centre
    freedom = (a + b) ** 2 / (a**2 / (len(left) - 1) + b**2 / (len(right) - 1))
    half = quantile(freedom) * math.sqrt(a + b)
    return centre - half, centre + half


def _containing(value: float, interval: Interval) -> Interval:
    """The interval is centred on a mean; in a skewed sample the median may lie a hair outside it."""
    return min(interval[0], value), max(interval[1], value)
