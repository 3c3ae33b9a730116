"""The table of `auto`: which size and type a tensor belongs to, and files that are not tables."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.comm.collectives._auto_table import (
    SIZES,
    choose,
    decode,
    encode,
    fastest,
    kind_of,
    nearest,
    path_of,
)

KEY = {"host": "here", "ranks": 2}
CHOICES = {"float": {4096: "a", 65536: "b"}, "half": {4096: "b"}}


@given(st.integers(0, 1 << 40), st.sets(st.integers(1, 1 << 30), min_size=1))
def test_nearest_has_the_smallest_ratio(nbytes, sizes):
    def ratio(size: int) -> float:
        return abs(math.log(size / max(1, nbytes)))

    found = nearest(list(sizes), nbytes)
    assert found in sizes
    assert ratio(found) <= min(map(ratio, sizes)) + 1e-9


def test_a_size_between_two_belongs_to_the_nearer_by_ratio():
    assert nearest([4096, 65536], 16383) == 4096
    assert nearest([4096, 65536], 16385) == 65536
    assert nearest([4096, 65536], 16384) == 4096  # equally near: the smaller


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(torch.float32, "float"), (torch.float64, "float"), (torch.float16, "half"), (torch.bfloat16, "half"),
     (torch.int64, "other"), (torch.uint8, "other"), (torch.bool, "other")],
)  # fmt: skip
def test_kinds(dtype, kind):
    assert kind_of(dtype) == kind and kind in SIZES


def test_choose_takes_the_row_of_the_type_and_float_where_there_is_none():
    assert choose(CHOICES, torch.float32, 100) == "a"
    assert choose(CHOICES, torch.float32, 1 << 30) == "b"
    assert choose(CHOICES, torch.bfloat16, 100) == "b"
    assert choose(CHOICES, torch.int32, 100) == "a"


def test_fastest_and_equal_ones():
    assert fastest({"b": 2.0, "a": 3.0}) == "b"
    assert fastest({"b": 2.0, "a": 2.0}) == "a"


def test_a_table_survives_its_file():
    text = json.dumps(encode(KEY, CHOICES, {}))
    assert decode(text, KEY, ["a", "b"]) == CHOICES


WHOLE = json.dumps(encode(KEY, CHOICES, {}))


@pytest.mark.parametrize(
    ("text", "key", "names"),
    [
        ("", KEY, ["a", "b"]),
        (WHOLE[:-20], KEY, ["a", "b"]),
        ("[1, 2]", KEY, ["a", "b"]),
        ("null", KEY, ["a", "b"]),
        (WHOLE.replace('"schema": 1', '"schema": 0'), KEY, ["a", "b"]),
        (WHOLE, KEY | {"ranks": 4}, ["a", "b"]),
        (WHOLE, KEY, ["a"]),
        (WHOLE.replace('"float"', '"floating"'), KEY, ["a", "b"]),
        (WHOLE.replace('"4096"', '"many"'), KEY, ["a", "b"]),
        (json.dumps(encode(KEY, {"float": {}}, {})), KEY, ["a", "b"]),
        (json.dumps(encode(KEY, {"float": []}, {})), KEY, ["a", "b"]),
    ],
)
def test_what_is_not_a_whole_table_of_this_key_is_none(text, key, names):
    assert decode(text, key, names) is None


def test_another_key_is_another_file(tmp_path):
    paths = {
        path_of(tmp_path, KEY),
        path_of(tmp_path, KEY | {"ranks": 4}),
        path_of(tmp_path, KEY | {"host": "b"}),
    }
    assert len(paths) == 3
