"""Interleaving and the order-statistic interval."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from paceline.metrics.measure import interleave, median_interval, ratio


def test_rounds_take_turns_in_beginning():
    calls = []
    ticks = itertools.count()
    found = interleave(
        {name: lambda name=name: calls.append(name) for name in "abc"},
        4,
        before=lambda: calls.append("-"),
        clock=lambda: next(ticks),
    )
    assert "".join(calls).replace("-", "") == "abcbcacababc"
    assert calls.count("-") == 12
    assert found == dict.fromkeys("abc", (1, 1, 1, 1))


@pytest.mark.parametrize(
    ("n", "low", "high", "confidence"),
    [
        (1, 1, 1, 0),
        (3, 1, 3, 0.75),
        (5, 1, 5, 0.9375),
        (6, 1, 6, 0.96875),
        (7, 1, 7, 0.984375),
        (9, 2, 8, 0.9609375),
        (2001, 957, 1045, 0.950872),  # 2 ** 2000 is no float
    ],
)
def test_interval_of_known_orders(n, low, high, confidence):
    interval = median_interval(np.random.default_rng(n).permutation(n) + 1.0)
    assert (interval.low, interval.high, interval.n) == (low, high, n)
    assert interval.median == (n + 1) / 2
    assert interval.confidence == pytest.approx(confidence)


def test_the_interval_holds_the_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [median_interval(rng.exponential(size=11).tolist()) for _ in range(2000)]
    share = np.mean([i.low <= np.log(2) <= i.high for i in intervals])
    assert share == pytest.approx(intervals[0].confidence, abs=0.015)


def test_ratio_is_within_the_round():
    assert ratio((2.0, 9.0), (1.0, 3.0)) == (2.0, 3.0)
    with pytest.raises(ValueError, match="zip"):
        ratio((1.0,), (1.0, 2.0))


def test_no_values():
    with pytest.raises(ValueError, match="no values"):
        median_interval([])
