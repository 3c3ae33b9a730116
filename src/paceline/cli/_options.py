"""Command-line options made from a configuration record: one option a field, so the two cannot disagree.

An option that was not given is absent from the result, so that a file's value is not overwritten by a
default. Every complaint is raised by the record's own checks.
"""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Iterable
from typing import Any

from paceline.config.files import parse_options
from paceline.errors import ConfigError
from paceline.registry import Registry
from paceline.typed import members


def add_record(parser: argparse.ArgumentParser, record: type, *, leave_out: Iterable[str] = ()) -> None:
    """All fields of `record` as options, in groups."""
    hints = typing.get_type_hints(record)
    groups: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        if field.name in leave_out:
            continue
        title = field.metadata["group"]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add(groups[title], field, hints[field.name])


def given(arguments: argparse.Namespace, record: type) -> dict[str, Any]:
    """The fields that the command line named."""
    names = {f.name for f in dataclasses.fields(record)}
    return {name: value for name, value in vars(arguments).items() if name in names}


def _add(group: Any, field: dataclasses.Field[Any], hint: Any) -> None:
    flag = "--" + field.name.replace("_", "-")
    kinds = members(hint)
    text = _help(field)
    if bool in kinds:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        return
    reader, shown = _reader(flag, kinds)
    group.add_argument(flag, type=reader, metavar=shown, default=argparse.SUPPRESS, help=text)


def _reader(flag: str, kinds: tuple[Any, ...]) -> tuple[Any, str]:
    """What turns an option's text into its value, and how the help page shows it."""
    if typing.get_origin(kinds[0]) is tuple:
        item, _ = _reader(flag, typing.get_args(kinds[0])[:1])
        return lambda text: [item(word.strip()) for word in text.split(",") if word.strip()], "A,B,…"
    if int in kinds:
        return _number(flag, int, "a whole number"), "N"
    if float in kinds:
        return _number(flag, float, "a number"), "X"
    if str in kinds:
        return str, "TEXT"
    return parse_options, "KEY=VALUE,…"


def _number(flag: str, kind: type, spoken: str) -> Any:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError as error:
            raise ConfigError(f"{flag} {text}: must be {spoken}") from error

    return read


def _help(field: dataclasses.Field[Any]) -> str:
    text: str = field.metadata["help"]
    registry: Registry | None = field.metadata["registry"]
    if registry is not None:
        text += ": " + ", ".join(registry.names())
    plain = field.default not in (None, dataclasses.MISSING, "", False, ())
    default = field.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    if plain and f"default {default}" not in text:
        text += f" (default {default})"
    return text.replace("%", "%%")
