"""All-reduce by every collective, in the same processes and in turns, beside what memory allows.

    fork p ranks ─► all collectives constructed ─► sizes × rounds × collectives   (_allreduce_rank.py)
    fork p ranks once more for each collective ─► its peak memory alone
    what the ranks left ─► rows (_allreduce_rows.py) ─► table and figures (_allreduce_page.py)

Cost: about --seconds of measuring, spread evenly over ranks and sizes, and 0.2 to 1 s a world to start.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.bench import Row
from paceline.config.files import read_toml
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.bench._allreduce_cases import Case
    from paceline.bench._allreduce_rank import Grid
    from paceline.bench._progress import BenchProgress
    from paceline.launch.environment import Place
    from paceline.report.content import Section

HELP = "time, CPU, memory and error of every collective against torch's own and the copy bandwidth"
TITLE = "All-reduce, collective by collective"
QUESTION = "Which collective is fastest for which size and how many ranks, and what does it cost?"

MOST_RANKS = 32
_DEADLINE = 120.0  # of any wait inside: 32 ranks on two cores take seconds where 2 take none
_KEYS = ("ranks", "sizes", "collectives", "seconds", "rounds", "calls", "memory")


@dataclass(frozen=True)
class Wanted:
    """What is to be measured, checked."""

    ranks: Sequence[int] = (2, 4, 8)
    sizes: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000)
    collectives: Sequence[str] = ()
    seconds: float = 40.0
    rounds: int = 101
    calls: int = 16
    memory: bool = True

    def __post_init__(self) -> None:
        for p in self.ranks:
            whole("ranks", p, 1, MOST_RANKS)
        for size in self.sizes:
            whole("sizes", size, 0, 1 << 28)
        if not self.ranks or not self.sizes:
            raise ConfigError("nothing to measure: give --ranks such as 2,4 and --sizes such as 1000,100000")
        whole("rounds", self.rounds, 1, 10_000)
        whole("calls", self.calls, 1, 1_000)
        if not isinstance(self.seconds, int | float) or not self.seconds > 0:
            raise ConfigError(f"seconds = {self.seconds!r} must be a positive number")


def whole(name: str, value: object, least: int, most: int) -> None:
    """Refuse what is no whole number in this range."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{name}: {value!r} must be a whole number from {least} to {most:,}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from paceline.bench._allreduce_cases import split

    def option(name: str, metavar: str, help: str, kind: Callable[[str], Any]) -> None:
        parser.add_argument(name, metavar=metavar, help=help, type=kind, default=argparse.SUPPRESS)

    option("--ranks", "A,B,…", f"how many ranks, up to {MOST_RANKS} (default 2,4,8)", numbers("--ranks"))
    option("--sizes", "A,B,…", "float32 elements (default 1000,10000,100000,1000000)", numbers("--sizes"))
    option(
        "--collectives",
        "A,B,…",
        "names; torch is native, NAME:zero_copy reduces tensors that NAME allocated, NAME[OPTION=VALUE] sets "
        "options (default: all)",
        split,
    )
    option("--seconds", "X", "of measuring, over all ranks and sizes (default 40)", number)
    option("--rounds", "N", "at most, for each ranks and size (default 101; at least 7 are made)", int)
    option(
        "--calls", "N", "at most, one after the other in a round; 1 measures single calls (default 16)", int
    )
    parser.add_argument(
        "--memory",
        action=argparse.BooleanOptionalAction,
        default=argparse.SUPPRESS,
        help="measure peak memory, in a world of its own for each collective (default yes)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE.toml", help="the same keys from a file (see studies/)"
    )


def numbers(flag: str) -> Callable[[str], list[int]]:
    """What reads whole numbers joined with commas."""

    def read(text: str) -> list[int]:
        try:
            return [int(word) for word in text.replace("_", "").split(",") if word.strip()]
        except ValueError as error:
            raise ConfigError(f"{flag} {text}: must be whole numbers joined with commas") from error

    return read


def number(text: str) -> float:
    """--seconds as a number."""
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"--seconds {text}: must be a number") from error


def wanted(arguments: argparse.Namespace) -> Wanted:
    """The file's keys, changed by what the command line names."""
    keys: dict[str, Any] = read_toml(arguments.config) if arguments.config else {}
    unknown = sorted(set(keys) - set(_KEYS))
    if unknown:
        raise ConfigError(f"{arguments.config}: no key {unknown[0]!r}; there is {', '.join(_KEYS)}")
    given = {key: value for key, value in vars(arguments).items() if key in _KEYS}
    return Wanted(**(keys | given))


def measure(arguments: argparse.Namespace, progress: BenchProgress) -> list[Row]:
    """All worlds, one after the other."""
    asked = wanted(arguments)
    progress(0.0, "starting")
    from paceline.bench._allreduce_cases import every_case, parse_all
    from paceline.bench._allreduce_rank import Grid
    from paceline.metrics.resources import usable_cores

    cases = parse_all(asked.collectives or every_case())
    seconds = asked.seconds / (len(asked.ranks) * len(asked.sizes))
    grid = Grid(cases, sorted(set(asked.sizes)), seconds, asked.rounds, asked.calls, _DEADLINE)
    rows: list[Row] = []
    ranks = sorted(set(asked.ranks))
    for number, p in enumerate(ranks):
        span = (number / len(ranks), (number + 1) / len(ranks))
        rows += _world(grid, p, functools.partial(within, progress, span), memory=asked.memory)
    cores = usable_cores()
    return [row | {"cores": cores, "crowded": row["ranks"] > cores} for row in rows]


def within(progress: BenchProgress, span: tuple[float, float], fraction: float, doing: str) -> None:
    """Told as a part of the whole."""
    progress(span[0] + (span[1] - span[0]) * fraction, doing)


def _world(grid: Grid, ranks: int, progress: Callable[[float, str], None], *, memory: bool) -> list[Row]:
    from paceline.bench._allreduce_rank import memory_rank, run_rank
    from paceline.bench._allreduce_rows import rows_of, with_peaks
    from paceline.report import formats

    share = 0.8 if memory else 1.0
    found = start(
        functools.partial(run_rank, grid), ranks, lambda f: progress(share * f, formats.ranks(ranks))
    )
    skipped = found[0]["skipped"]
    rows = rows_of(found, [case.label for case in grid.cases if case.reference])
    peaks: dict[tuple[str, int], int] = {}
    here = [case for case in grid.cases if case.label not in skipped]
    for number, case in enumerate(here if memory else ()):
        progress(share + (1 - share) * number / len(here), f"{formats.ranks(ranks)}: memory")
        peaks |= _peaks(functools.partial(memory_rank, case, grid), case, ranks)
    for label, reason in skipped.items():
        print(f"skipped   {label} with {ranks} ranks: {reason}", file=sys.stderr)
    return [row | {"skipped": skipped} for row in with_peaks(rows, peaks)]


def _peaks(function: Callable[..., None], case: Case, ranks: int) -> dict[tuple[str, int], int]:
    """Of the rank that needs most."""
    found = start(function, ranks, lambda _: None)
    return {(case.label, int(size)): max(rank[size] for rank in found) for size in found[0]}


def start(function: Callable[..., None], ranks: int, told: Callable[[float], None]) -> list[Any]:
    """Run `function(board, folder, place)` in `ranks` ranks; gives what each left, in rank order."""
    from paceline.bench._allreduce_rank import read
    from paceline.bench._board import Board
    from paceline.launch import local

    board = Board(ranks, _DEADLINE)
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as name:
        rank: Callable[[Place], None] = functools.partial(function, board, Path(name))
        told(0.0)
        local.start(rank, ranks, threads=1, tick=lambda: told(board.told))
        return read(Path(name), ranks)


def sections(rows: list[Row]) -> list[Section]:
    """Table and figures."""
    from paceline.bench import _allreduce_page

    return _allreduce_page.sections(rows)
