"""The report as a list of sections, said once; page.py, markdown.py and notebook.py only dress them.

    (answer) → accuracy → time → speed-up → time split → time to target → at equal cost
    → cooperation → memory → settings → runs → machine

A section holds drawings and tables and the names of the files they come from. `code` is what a notebook runs
to make the same drawings and tables again: `display(*plots.accuracy(study))`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.report import compare, cooperation, plots, scaling_plots, settings, tables
from paceline.report.canvas import Drawing
from paceline.report.measured import StudyData
from paceline.report.tables import Table


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it."""

    id: str
    title: str
    lead: str
    source: str
    code: str
    drawings: Sequence[Drawing]
    tables: Sequence[Table]


Maker = Callable[[StudyData], Sequence[Drawing | Table]]


@dataclass(frozen=True)
class Plan:
    """A section before it is made: its words, and the functions that make its drawings and tables."""

    id: str
    title: str
    source: str
    makers: tuple[Maker, ...]
    lead: str = ""


PLAN = (
    Plan(
        id="accuracy",
        title="Accuracy per epoch",
        lead="Does training with more ranks still learn as well? One line per p.",
        source="train_accuracy.npy and test_accuracy.npy of each run",
        makers=(plots.accuracy,),
    ),
    Plan(
        id="time",
        title="Total training time",
        lead="Wall time of the slowest rank, without start-up and evaluation; never the sum over ranks.",
        source="train_seconds in each summary.json",
        makers=(scaling_plots.times,),
    ),
    Plan(
        id="speed-up",
        title="Speed-up and efficiency",
        lead="Speed-up is throughput over the throughput of one rank; efficiency is speed-up divided by p. "
        "Strong scaling holds the global batch fixed. Weak scaling holds the batch per rank fixed, so the "
        "global batch grows with p and an epoch makes fewer updates.",
        source="laws.json, and samples_per_second in each summary.json",
        makers=(scaling_plots.speedups, scaling_plots.efficiencies, tables.scaling, tables.fits),
    ),
    Plan(
        id="split",
        title="Where the time goes",
        lead="Data: fetching batches. Compute: forward and backward. Communicate: moving and adding numbers. "
        "Wait: for slower ranks. Update: the optimizer.",
        source="data_seconds to other_seconds in each summary.json",
        makers=(plots.phases, tables.phases),
    ),
    Plan(
        id="targets",
        title="Time to accuracy",
        lead="Training time until the test accuracy first reached a target: speed and learning at once.",
        source="test_accuracy.npy and epoch_seconds in each summary.json",
        makers=(scaling_plots.targets, tables.targets),
    ),
    Plan(
        id="compare",
        title="At equal cost",
        lead="The test accuracy that each cell had reached at the largest number of samples, updates or "
        "training seconds that every run reached: of each run the last evaluation up to there, median over "
        "the repeats, with the interval of their order statistics. The option --compare of paceline study "
        "chooses samples, updates or seconds.",
        source="test_accuracy.npy; epoch_samples, epoch_updates and epoch_seconds in each summary.json",
        makers=(compare.curves, compare.at_equal),
    ),
    Plan(
        id="cooperation",
        title="What cooperating took",
        lead="Messages and bytes of all ranks; seconds of a rank (their mean) communicating and waiting. "
        "Staleness: updates by others between reading parameters and changing them.",
        source="messages_by_rank to waited_for_seconds in each summary.json",
        makers=(cooperation.accounts, cooperation.staleness, cooperation.agreements),
    ),
    Plan(
        id="memory",
        title="Memory",
        lead="The peak of a rank counts pages that it shares with others; the proportional size of a node "
        "counts every page once.",
        source="peak_memory_bytes and proportional_memory_bytes in each summary.json",
        makers=(plots.memory, tables.memory),
    ),
    Plan(
        id="settings",
        title="Hyper-parameters",
        source="each summary.json, and config.toml beside it",
        makers=(settings.hyper_parameters, settings.configuration),
    ),
    Plan(
        id="cells",
        title="Runs",
        lead="One line per run; its name leads to its numbers. A star: more ranks than cores.",
        source="summary.json of each run",
        makers=(tables.cells,),
    ),
    Plan(
        id="machine",
        title="Machine and versions",
        source="machine, versions and commit in each summary.json",
        makers=(settings.machine,),
    ),
)


def sections(study: StudyData) -> list[Section]:
    """All sections that have something to show."""
    made = [_section(study, plan) for plan in PLAN]
    return [section for section in made if section.drawings or section.tables]


def _section(study: StudyData, plan: Plan) -> Section:
    parts = [part for maker in plan.makers for part in maker(study)]
    calls = ", ".join(
        f"*{maker.__module__.rpartition('.')[2]}.{maker.__name__}(study)" for maker in plan.makers
    )
    return Section(
        id=plan.id,
        title=plan.title,
        lead=plan.lead,
        source=plan.source,
        code=f"display({calls})",
        drawings=[part for part in parts if isinstance(part, Drawing)],
        tables=[part for part in parts if isinstance(part, Table)],
    )
