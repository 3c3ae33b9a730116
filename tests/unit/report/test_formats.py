"""Numbers as the report writes them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.report import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (math.nan, "–"), (0, "0 s"), (3.2e-5, "32.0 µs"), (0.0042, "4.20 ms"),
        (0.9999, "1.00 s"),
        (1.5, "1.50 s"), (83.14, "83.1 s"), (119.4, "119 s"), (119.6, "2 min 00 s"), (245, "4 min 05 s"),
        (3599.6, "1 h 00 min"), (4210, "1 h 10 min"),
    ],
)  # fmt: skip
def test_seconds_choose_their_unit(value, text):
    assert formats.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0019, "+0.19 points"), (-0.0176, "−1.76 points"), (0.00001, "±0.00 points"), (None, "–")],
)
def test_points_always_have_a_sign(value, text):
    assert formats.points(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (312e6, "312 MB"), (16e9, "16.0 GB"), (5e12, "5.00 TB"), (None, "–")],
)  # fmt: skip
def test_bytes(value, text):
    assert formats.bytes_(value) == text


def test_small_words():
    assert formats.percent(0.98532, 2) == "98.53 %"
    assert formats.times(1.1795) == "1.18×"
    assert formats.between((1.1, 1.25)) == "1.10–1.25×"
    assert formats.between(None) == "–"
    assert formats.count(60000) == "60,000"
    assert formats.count(42.667) == "42.67"
    assert formats.ranks(1) == "1 rank"
    assert [formats.listing(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "", "a", "a and b", "a, b and c",
    ]  # fmt: skip


@given(st.floats(min_value=1e-6, max_value=999))
def test_three_significant_figures_are_within_half_a_per_cent(value):
    assert float(formats.significant(value)) == pytest.approx(value, rel=5.1e-3)


@given(st.floats(min_value=1e-5, max_value=1e6))
def test_seconds_never_say_60_seconds_or_1000_units(value):
    text = formats.seconds(value)
    assert " 60 s" not in text
    assert "1,000" not in text
