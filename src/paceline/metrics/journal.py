"""The journal: one rank's measurements as append-only JSON lines.

    {"kind": "start", …}   once: who and where this rank is
    {"kind": "steps", …}   a stretch of steps: loss and samples of each, arrival at and return from its
                           collective (µs after "at"), seconds by phase
    {"kind": "epoch", …}   an epoch's evaluation (the same numbers on every rank)
    {"kind": "note",  …}   something a user should read
    {"kind": "end",   …}   once: memory, messages, bytes; its absence means that the rank did not finish

Writing never communicates. A line is written whole and flushed, so a rank that is killed loses the stretch
it was in and nothing else; a reader skips a torn last line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = 1


class Journal:
    """Appends lines to `journal-<rank>.jsonl` in a run's folder."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = journal_path(folder, rank)
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, kind: str, **fields: Any) -> None:
        """One line, on disk for every reader when this returns."""
        self._file.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closing twice is harmless."""
        self._file.close()


def journal_path(folder: Path, rank: int) -> Path:
    """Where a rank's journal lies."""
    return folder / f"journal-{rank}.jsonl"


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal; a torn last line (a killed rank) is left out."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)
