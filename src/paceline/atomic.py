"""Files that appear whole or not at all: temporary file in the same folder, fsync, rename."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write here; `path` gets the content when the block ends well and keeps its old one otherwise."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Text, in UTF-8."""
    with replacing(path) as file:
        file.write(text.encode())


def write_json(path: Path, values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """One JSON object or list of objects, readable by people too."""
    write_text(path, json.dumps(values, indent=1, default=dict) + "\n")
