"""SyncBatchNorm against BatchNorm1d in one process and the same mathematics over gloo.

    fork p ranks ─► grid of features × batch × rounds × cases          (_syncbn_rank.py)
    fork p ranks once more for each case ─► its peak memory alone
    what the ranks left ─► rows (_syncbn_rows.py) ─► table and figures (_syncbn_page.py)

Cost: about --seconds of measuring, spread evenly over ranks and cells, and half a second a world to start.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.bench import Row
from paceline.bench.allreduce import number, numbers, start, whole, within
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.bench._progress import BenchProgress
    from paceline.bench._syncbn_rank import Grid
    from paceline.report.content import Section

HELP = "batch norm over all ranks: time, CPU, memory, error against BatchNorm1d and gloo"
TITLE = "Batch norm over all ranks"
QUESTION = "What does it cost that all ranks' samples count, and is it right?"

MOST_RANKS = 32
_DEADLINE = 120.0
_KEYS = ("ranks", "features", "batch", "seconds", "rounds", "passes", "memory")


@dataclass(frozen=True)
class Wanted:
    """What is to be measured, checked."""

    ranks: Sequence[int] = (1, 2, 4)
    features: Sequence[int] = (128, 256, 512, 1024)
    batch: Sequence[int] = (32, 64)
    seconds: float = 60.0
    rounds: int = 101
    passes: int = 20
    memory: bool = True

    def __post_init__(self) -> None:
        for name, most in (("ranks", MOST_RANKS), ("features", 1 << 20), ("batch", 1 << 20)):
            values = getattr(self, name)
            for value in values:
                whole(name, value, 1, most)
            if not values:
                raise ConfigError(f"nothing to measure: give --{name} such as 64,128")
        if min(self.batch) < 2:
            raise ConfigError("batch: one sample has no variance; use at least 2")
        whole("rounds", self.rounds, 1, 10_000)
        whole("passes", self.passes, 1, 1_000)
        if not self.seconds > 0:
            raise ConfigError(f"seconds = {self.seconds!r} must be a positive number")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    def option(name: str, metavar: str, help: str, kind: Callable[[str], Any]) -> None:
        parser.add_argument(name, metavar=metavar, help=help, type=kind, default=argparse.SUPPRESS)

    option("--ranks", "A,B,…", f"how many ranks, up to {MOST_RANKS} (default 1,2,4)", numbers("--ranks"))
    option("--features", "A,B,…", "channels of the layer (default 128,256,512,1024)", numbers("--features"))
    option("--batch", "A,B,…", "samples of all ranks together (default 32,64)", numbers("--batch"))
    option("--seconds", "X", "of measuring, over all ranks and cells (default 60)", number)
    option("--rounds", "N", "at most, for each cell (default 101; at least 7 are made)", int)
    option("--passes", "N", "at most, one after the other in a round (default 20)", int)
    parser.add_argument(
        "--memory",
        action=argparse.BooleanOptionalAction,
        default=argparse.SUPPRESS,
        help="measure peak memory, in a world of its own for each case (default yes)",
    )


def measure(arguments: argparse.Namespace, progress: BenchProgress) -> list[Row]:
    """All worlds, one after the other."""
    asked = Wanted(**{key: value for key, value in vars(arguments).items() if key in _KEYS})
    progress(0.0, "starting")
    from paceline.bench._syncbn_rank import Grid
    from paceline.metrics.resources import usable_cores

    cells = [
        (features, batch) for features in sorted(set(asked.features)) for batch in sorted(set(asked.batch))
    ]
    share = asked.seconds / (len(asked.ranks) * len(cells))
    grid = Grid(cells, share, asked.rounds, asked.passes, _DEADLINE)
    rows: list[Row] = []
    ranks = sorted(set(asked.ranks))
    for place, p in enumerate(ranks):
        span = (place / len(ranks), (place + 1) / len(ranks))
        rows += _world(grid, p, functools.partial(within, progress, span), memory=asked.memory)
    cores = usable_cores()
    return [row | {"cores": cores, "crowded": row["ranks"] > cores} for row in rows]


def _world(grid: Grid, ranks: int, progress: Callable[[float, str], None], *, memory: bool) -> list[Row]:
    from paceline.bench._syncbn_rank import memory_rank, run_rank
    from paceline.bench._syncbn_rows import rows_of
    from paceline.report import formats

    share = 0.8 if memory else 1.0
    words = formats.ranks(ranks)
    found = start(functools.partial(run_rank, grid), ranks, lambda f: progress(share * f, words))
    labels = list(found[0]["cells"][0]["samples"])
    peaks: dict[tuple[str, int, int], int] = {}
    for place, label in enumerate(labels if memory else ()):
        progress(share + (1 - share) * place / len(labels), f"{words}: memory")
        left = start(functools.partial(memory_rank, label, grid), ranks, lambda _: None)
        for of_ranks in zip(*left, strict=True):
            features, batch, _ = of_ranks[0]
            peaks[label, features, batch] = max(peak for *_, peak in of_ranks)
    return rows_of(found, peaks)


def sections(rows: list[Row]) -> list[Section]:
    """Table and figures."""
    from paceline.bench import _syncbn_page

    return _syncbn_page.sections(rows)
