"""The time of a training step outside forward and backward, and the memory of a replica, by strategy.

    fork p ranks ─► every strategy with a model of its own, in turns with none at all   (_step_rank.py)
    fork p ranks once more for each strategy ─► what it holds in memory                 (_step_memory.py)
    what the ranks left ─► rows (_step_rows.py) ─► table and figures                    (_step_page.py)

Outside: a step's wall time minus that of the same forward and backward without any strategy, measured in
the same ranks and the same round; so it holds communication, waiting, the optimizer and zeroing, for every
strategy alike. It does not depend on the batch, so a small batch measures it with less noise.
Cost: about --seconds of measuring, and about a second a world to start.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.bench import Row
from paceline.bench.allreduce import number, numbers, start, whole
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.bench._progress import BenchProgress
    from paceline.bench._step_cases import Case
    from paceline.bench._step_rank import Job
    from paceline.report.content import Section

HELP = "time of a step outside forward and backward, and memory of a replica, of every strategy"
TITLE = "A training step, strategy by strategy"
QUESTION = (
    "What does cooperating cost beyond computing, in time and in memory, and which strategy costs least?"
)

MOST_RANKS = 32
_DEADLINE = 120.0
_MEMORY_SHARE = 0.25  # of the progress bar


@dataclass(frozen=True)
class Wanted:
    """What is to be measured, checked."""

    models: Sequence[str] = ()
    ranks: Sequence[int] = (2,)
    memory_ranks: Sequence[int] = (1, 2, 4, 8)
    batch: int = 4
    strategies: Sequence[str] = ()
    seconds: float = 60.0

    def __post_init__(self) -> None:
        for p in (*self.ranks, *self.memory_ranks):
            whole("ranks", p, 1, MOST_RANKS)
        if not self.ranks:
            raise ConfigError("nothing to measure: give --ranks such as 2,4")
        whole("batch", self.batch, 2, 1 << 20)
        if not self.seconds > 0:
            raise ConfigError(f"seconds = {self.seconds!r} must be a positive number")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from paceline.bench._allreduce_cases import split

    def option(name: str, metavar: str, help: str, kind: Callable[[str], Any]) -> None:
        parser.add_argument(name, metavar=metavar, help=help, type=kind, default=argparse.SUPPRESS)

    option("--models", "A,B,…", "models by name (default mnist_cnn,svhn_lenet,resnet18)", split)
    option("--ranks", "A,B,…", f"how many ranks, up to {MOST_RANKS} (default 2)", numbers("--ranks"))
    option(
        "--strategies",
        "A,B,…",
        "names; NAME@COLLECTIVE, NAME[OPTION=VALUE], NAME:stock and NAME:fused for the form of SGD "
        "(default torch_ddp,torch_ddp:fused,ddp,one_copy)",
        split,
    )
    option("--batch", "N", "samples of a rank in a step, at least 2 (default 4)", int)
    option("--seconds", "X", "of measuring, over all models and ranks (default 60)", number)
    option(
        "--memory-ranks",
        "A,B,…",
        "how many ranks memory is measured with; an empty list leaves it out (default 1,2,4,8)",
        numbers("--memory-ranks"),
    )


def measure(arguments: argparse.Namespace, progress: BenchProgress) -> list[Row]:
    """All models and worlds, one after the other."""
    keys = Wanted.__dataclass_fields__
    asked = Wanted(**{key: value for key, value in vars(arguments).items() if key in keys})
    progress(0.0, "starting")
    from paceline.bench._step_cases import DEFAULT, MODELS_DEFAULT, parse_all, shape_of
    from paceline.bench._step_rank import Job
    from paceline.metrics.resources import usable_cores

    cases = parse_all(list(asked.strategies or DEFAULT))
    models = list(dict.fromkeys(asked.models or MODELS_DEFAULT))
    for model in models:
        shape_of(model)
    worlds = [(model, p) for model in models for p in sorted({*asked.ranks, *asked.memory_ranks})]
    seconds = asked.seconds / (len(models) * len(set(asked.ranks)))
    rows: list[Row] = []
    for place, (model, p) in enumerate(worlds):
        job = Job(model, cases, asked.batch, seconds, _DEADLINE)
        say = functools.partial(_within, progress, place, len(worlds))
        found = _timed(job, p, say) if p in asked.ranks else _untimed(cases, p)
        if p in asked.memory_ranks:
            found = [_with_memory(job, case, row, say) for case, row in zip(cases, found, strict=True)]
        rows += [{"model": model, "batch": asked.batch} | row for row in found]
    cores = usable_cores()
    return [row | {"cores": cores, "crowded": row["ranks"] > cores} for row in rows]


def _within(progress: BenchProgress, place: int, of: int, fraction: float, doing: str) -> None:
    progress((place + fraction) / of, doing)


def _timed(job: Job, ranks: int, say: Callable[[float, str], None]) -> list[Row]:
    from paceline.bench._step_cases import reference_of
    from paceline.bench._step_rank import run_rank
    from paceline.bench._step_rows import rows_of

    words = f"{job.model}, {ranks} ranks"
    told: Callable[[float], None] = lambda fraction: say(fraction * (1 - _MEMORY_SHARE), words)  # noqa: E731
    found = start(functools.partial(run_rank, job), ranks, told)
    return rows_of(found, reference_of([case.label for case in job.cases]))


def _untimed(cases: Sequence[Case], ranks: int) -> list[Row]:
    return [{"strategy": case.label, "ranks": ranks} for case in cases]


def _with_memory(job: Job, case: Case, row: Row, say: Callable[[float, str], None]) -> Row:
    from paceline.bench._step_memory import memory_rank
    from paceline.bench._step_rows import with_memory

    say(1 - _MEMORY_SHARE, f"{job.model}, {row['ranks']} ranks: memory of {case.label}")
    return with_memory(row, start(functools.partial(memory_rank, job, case), row["ranks"], lambda _: None))


def sections(rows: list[Row]) -> list[Section]:
    """Table and figures."""
    from paceline.bench import _step_page

    return _step_page.sections(rows)
