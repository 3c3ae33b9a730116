"""Batched augmentation against a plain loop over samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.augment import Change, augment, check_augment, draw, parse_augment
from paceline.errors import ConfigError


def one_by_one(pictures, draws):
    """The slow obvious version."""
    changed = []
    for i, picture in enumerate(pictures):
        for (kind, n), values in zip(draws.spec, draws.values, strict=True):
            if kind == "flip":
                picture = picture[:, :, ::-1] if values[i] else picture
                continue
            mode = {"mode": "reflect"} if kind == "crop" else {}
            y, x = values[i]
            padded = np.pad(picture, ((0, 0), (n, n), (n, n)), **mode)
            picture = padded[:, y : y + picture.shape[1], x : x + picture.shape[2]]
        changed.append(picture)
    return np.array(changed, np.uint8).reshape(pictures.shape)


@given(
    st.sampled_from(["", "shift:1", "shift:2,flip", "crop:4,flip", "flip,crop:2,shift:3", "crop:5"]),
    st.integers(0, 9),
    st.sampled_from([1, 3]),
    st.integers(6, 9),
    st.integers(6, 9),
    st.integers(0, 99),
)
def test_equals_the_plain_loop(text, count, channels, height, width, seed):
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 256, (count, channels, height, width), dtype=np.uint8)
    before = pictures.copy()
    draws = draw(parse_augment(text), count, rng)
    changed = augment(pictures, draws)
    assert changed.dtype == np.uint8
    assert np.array_equal(changed, one_by_one(pictures, draws))
    assert np.array_equal(pictures, before), "the given pictures are not touched"


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_a_slice_of_the_draws_is_what_those_samples_get(count, start, stop):
    pictures = np.random.default_rng(1).integers(0, 256, (count, 1, 8, 8), dtype=np.uint8)
    draws = draw(parse_augment("shift:2,crop:1,flip"), count, np.random.default_rng(2))
    part = slice(start, stop)
    assert np.array_equal(augment(pictures[part], draws[part]), augment(pictures, draws)[part])


def test_draws_reach_both_ends_and_black_moves_in():
    draws = draw(parse_augment("shift:2,flip"), 2000, np.random.default_rng(0))
    offsets, flips = draws.values
    assert (offsets.min(), offsets.max()) == (0, 4)
    assert set(flips) == {0, 1}
    white = np.full((2000, 1, 8, 8), 255, np.uint8)
    assert augment(white, draws)[offsets[:, 0] == 0][:, :, :2].max() == 0


def test_parse():
    assert parse_augment("") == ()
    assert parse_augment(" crop:4 , flip") == (Change("crop", 4), Change("flip", 0))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flop", "did you mean 'flip'"),
        ("rotate:3", "there is crop, flip, shift"),
        ("flip:2", "takes no number"),
        ("shift", "such as shift:2"),
        ("crop:0", "at least 1"),
        ("crop:-1", "at least 1"),
        ("shift:²", "at least 1"),
    ],
)
def test_a_wrong_spec_is_one_line(text, says):
    with pytest.raises(ConfigError, match=says):
        parse_augment(text)


def test_too_many_pixels_for_the_picture():
    check_augment(parse_augment("crop:27"), (1, 28, 28))
    with pytest.raises(ConfigError, match="at most 27"):
        check_augment(parse_augment("crop:28"), (1, 28, 28))
