"""Ratios and differences of repeated measurements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.study.laws_intervals import difference, ratio

POSITIVE = st.floats(1e-3, 1e3)


def test_one_measurement_a_side_has_no_interval():
    assert ratio([6.0], [3.0]) == (2.0, None)
    assert difference([6.0], [3.0]) == (3.0, None)
    assert ratio([6.0, 6.6], [3.0]).interval is None


def test_equal_counts_are_compared_in_pairs():
    """A machine that slows down by half from repeat to repeat hides nothing when neighbours are compared."""
    slower = np.array([1.0, 1.5, 2.25, 3.4])
    value, (low, high) = ratio(list(10 * slower), list(5 * slower))
    assert (value, low, high) == pytest.approx((2, 2, 2))
    assert ratio(list(10 * slower), list(5 * slower[:3])).interval[1] > 3


def test_the_estimate_is_a_median():
    value, (low, high) = ratio([10.0, 10.0, 90.0], [5.0, 5.0, 5.0])
    assert value == 2
    assert low < 2 < high


def test_hand_computed_paired_interval():
    """Log ratios 0, ln 2, ln 4: mean ln 2, deviation ln 2, t(2) = 4.302653."""
    value, (low, high) = ratio([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    half = 4.302653 / np.sqrt(3)
    assert value == 2
    assert (low, high) == pytest.approx((2 ** (1 - half), 2 ** (1 + half)), rel=1e-6)


def test_hand_computed_welch_interval():
    """Means 11 and 2, variances of the means 1/3 and 1/3, hence 4 degrees of freedom: t = 2.776445."""
    value, (low, high) = difference([10.0, 11.0, 12.0], [1.0, 2.0, 3.0])
    half = 2.776445 * np.sqrt(2 / 3)
    assert (value, low, high) == pytest.approx((9, 9 - half, 9 + half), rel=1e-6)


def test_no_spread_gives_a_point():
    assert difference([2.0, 2.0], [1.0, 1.0, 1.0]) == (1.0, (1.0, 1.0))
    value, (low, high) = ratio([2.0, 2.0], [1.0, 1.0])
    assert (value, low, high) == pytest.approx((2, 2, 2))


@given(st.lists(POSITIVE, min_size=2, max_size=9), st.lists(POSITIVE, min_size=2, max_size=9))
def test_the_interval_holds_the_estimate(over, under):
    for value, (low, high) in (ratio(over, under), difference(over, under)):
        assert low <= value <= high


@pytest.mark.parametrize("counts", [(3, 3), (5, 4), (2, 6)])
def test_the_interval_holds_the_truth_as_often_as_it_says(counts):
    rng, draws = np.random.default_rng(17), 1000
    held = 0
    for _ in range(draws):
        over, under = (
            list(mean * np.exp(0.1 * rng.standard_normal(n)))
            for mean, n in zip((30, 10), counts, strict=True)
        )
        low, high = ratio(over, under).interval
        held += low <= 3 <= high
    assert 0.925 <= held / draws <= 0.985
