"""A value as its declared type, or one sentence about what it must be.

Keys of TOML files, options on the command line and the keyword-only options of variants are all declared by
a type hint; this is the one place that holds a value against it. An int is accepted for a float, a bool
never for a number, a list for a tuple.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from paceline.errors import ConfigError, did_you_mean

_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def members(hint: Any) -> tuple[Any, ...]:
    """The members of a union (`int | None`), else the hint itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def fitted(where: str, value: Any, hint: Any) -> Any:
    """The value as `hint` wants it, or a one-line error that begins with `where`."""
    allowed = members(hint)
    kinds = {get_origin(one): one for one in allowed if get_origin(one) is not None}
    if Literal in kinds:
        return _chosen(where, value, kinds[Literal], allowed)
    if Any in allowed or (value is None and type(None) in allowed):
        return value
    if isinstance(value, Mapping):
        if Mapping in kinds:
            return types.MappingProxyType(dict(value))
    elif isinstance(value, list | tuple):
        if tuple in kinds:
            return tuple(fitted(where, each, get_args(kinds[tuple])[0]) for each in value)
        if Sequence in kinds:
            return [fitted(where, each, get_args(kinds[Sequence])[0]) for each in value]
    elif float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return _number(where, value)
    elif type(value) in allowed:
        return value
    wanted = " or ".join(_spoken(one) for one in allowed if one is not type(None))
    raise ConfigError(f"{where} = {value!r} must be {wanted}")


def _chosen(where: str, value: Any, literal: Any, allowed: tuple[Any, ...]) -> Any:
    if value in get_args(literal) or (value is None and type(None) in allowed):
        return value
    raise ConfigError(f"{where} = {value!r}; {did_you_mean(str(value), map(str, get_args(literal)))}")


def _number(where: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ConfigError(f"{where} = a number of {len(str(value))} digits is too large") from None


def _spoken(kind: Any) -> str:
    if get_origin(kind) in (tuple, Sequence):
        return f"a list, each {_spoken(get_args(kind)[0])}"
    if get_origin(kind) is Mapping:
        return "a table (key = value)"
    return _NAMES.get(kind, str(kind))
