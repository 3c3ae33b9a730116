"""What `paceline bench` can measure: one file a thing, found by existing.

    bench/<thing>.py          HELP, TITLE, QUESTION                   one line each
                              add_arguments(parser)                   its own options
                              measure(arguments, progress) -> rows    starts ranks, measures, plain values
                              sections(rows) -> [Section]             tables and figures for the report page
    bench/_<thing>_<part>.py  what its ranks do; only these import torch at the top
    cli/bench.py              --json, --out, --from, the terminal's table: written once, for every thing

A row is one measured case with names for its numbers; the rows are all that is kept, so `--from FILE` makes
table and figures again. The first table of the sections is also what the terminal shows.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.errors import ConfigError, did_you_mean

Row = dict[str, Any]


def things() -> list[str]:
    """`all_reduce.py` is measured by `paceline bench all-reduce`."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(file.stem.replace("_", "-") for file in files if not file.stem.startswith("_"))


def where(rows: Sequence[Row]) -> list[str]:
    """Cores, machine and commit of the rows, as sentences of a page's lead."""
    words = []
    for row in rows[:1]:
        if "cores" in row:
            words.append(f"Usable cores: {row['cores']}.")
        if "machine" in row:
            words.append(f"Machine: {row['machine']['cpu']}; commit {row.get('commit') or 'unknown'}.")
    return words


def load(thing: str) -> ModuleType:
    """The module that measures a thing."""
    if thing not in things():
        raise ConfigError(f"nothing to measure called {thing!r}; {did_you_mean(thing, things())}")
    return importlib.import_module(f"paceline.bench.{thing.replace('-', '_')}")
