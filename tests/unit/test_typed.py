"""A value as its declared type, or one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from paceline.errors import ConfigError
from paceline.typed import fitted


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, 1.0),
        (1, int | None, 1),
        (None, int | None, None),
        (True, bool, True),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, 2], Sequence[int] | str, [1, 2]),
        ("3x32x32", Sequence[int] | str, "3x32x32"),
        ("on", Literal["on", "off"], "on"),
        ({"a": 1}, Mapping[str, Any], {"a": 1}),
        (object, Any, object),
    ],
)
def test_what_fits(value, hint, expected):
    found = fitted("key", value, hint)
    assert found == expected
    assert type(found) is type(expected) or isinstance(value, dict)


@pytest.mark.parametrize(
    ("value", "hint", "said"),
    [
        (True, int, "key = True must be a whole number"),
        (True, float, "must be a number"),
        (1.5, int, "must be a whole number"),
        ("x", float | None, "key = 'x' must be a number"),
        (None, int, "must be a whole number"),
        (3, tuple[int, ...], "must be a list, each a whole number"),
        ({"a": 1}, tuple[int, ...], "must be a list, each a whole number"),
        ([1], Mapping[str, Any], "must be a table"),
        ("onn", Literal["on", "off"], "key = 'onn'; did you mean 'on'?"),
        (10**400, float, "is too large"),
    ],
)
def test_what_does_not(value, hint, said):
    with pytest.raises(ConfigError) as caught:
        fitted("key", value, hint)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
