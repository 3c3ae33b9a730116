"""TOML in and out, `key=value` words, and the hash that tells two configurations apart.

Reading is strict: an unknown key or a wrong type is one line with the nearest known key. Writing is the
small part of TOML that a flat record with a few one-level tables needs; tests read it back.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from paceline.errors import ConfigError, did_you_mean
from paceline.typed import fitted

Record = TypeVar("Record")

# Where a run's files lie and how long it may wait decide nothing about its result.
_NOT_HASHED = ("out", "data_root", "deadline")


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain values; every failure is one line that names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"no configuration file {path}; give the path of a .toml file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read as text: {getattr(error, 'strerror', None) or error}"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def merged(kind: type[Record], *layers: Mapping[str, Any], source: str = "configuration") -> Record:
    """One record from layers of values; later layers win. Keys and types are checked."""
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if key not in fields:
                raise ConfigError(f"{source}: unknown key {key!r}; {did_you_mean(key, fields)}")
            values[key] = fitted(f"{source}: {key}", value, hints[key])
    return kind(**values)


def parse_options(text: str) -> dict[str, Any]:
    """`dropout=0.2,hidden=64` -> values; each value is read as TOML, and as text where it is none."""
    found: dict[str, Any] = {}
    for word in _split(text):
        key, equals, value = word.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ConfigError(f"{word!r} is not key=value; write for example dropout=0.2,hidden=64")
        found[key.strip()] = parse_value(value.strip())
    return found


def parse_value(text: str) -> Any:
    """One value as TOML reads it (0.2, 64, true, [1, 2]), else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets, so that shape=[1,28,28] stays whole."""
    words, depth, current = [], 0, ""
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            words.append(current)
            current = ""
        else:
            current += letter
    return [word for word in [*words, current] if word.strip()]


def to_toml(values: Mapping[str, Any]) -> str:
    """Values as TOML text: scalars and lists first, then tables (two levels deep); None is left out."""
    return "\n".join(_toml_lines(values, "")) + "\n"


def _toml_lines(values: Mapping[str, Any], path: str) -> list[str]:
    tables = {k: v for k, v in values.items() if isinstance(v, Mapping) and v}
    plain = {k: v for k, v in values.items() if v is not None and not isinstance(v, Mapping)}
    lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    for key, table in tables.items():
        lines += ["", f"[{path}{key}]", *_toml_lines(table, f"{path}{key}.")]
    return lines


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(_toml_value(each) for each in value) + "]"
    return repr(value)


def config_hash(values: Mapping[str, Any]) -> str:
    """Twelve hex digits over everything that decides the result of a run."""
    decisive = {k: v for k, v in values.items() if k not in _NOT_HASHED and v is not None}
    canonical = json.dumps(decisive, sort_keys=True, default=dict)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]
