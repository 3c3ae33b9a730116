"""Cells compared at equal samples, equal updates or equal seconds, from what each run had reached.

    run A   ●────●────●────●────●          ● an evaluation, after so many samples (updates, seconds)
    run B   ●──────●──────●──────●
                         ┆ the largest number that every run reached
    A counts by its last evaluation up to there, B by its; nothing is interpolated, nothing run again

Samples and seconds of an epoch are the run's own; updates within an epoch go with its steps. Summaries of
earlier versions lack them by epoch: their epochs count as equally long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.metrics.measure import median_interval
from paceline.report import formats
from paceline.report.canvas import Drawing, colour, finish, marker, panel
from paceline.report.measured import Curve, Group, Run, StudyData, middle
from paceline.report.tables import Cell, Table

QUANTITIES = ("samples", "updates", "seconds")
_LINES = 10  # more cannot be told apart


@dataclass(frozen=True)
class Moment:
    """One run at its last evaluation up to the common number."""

    accuracy: float
    reached: dict[str, float]


def reached(run: Run, quantity: str) -> Curve:
    """Samples, updates or training seconds up to each evaluation of a run."""
    length = len(run.curves["test_accuracy"])
    if quantity == "seconds":
        whole = np.cumsum(run.numbers("epoch_seconds"))
    else:
        whole = np.asarray(run.numbers(f"epoch_{quantity}"))
    if len(whole) == length:
        return whole
    total = run.number("train_seconds" if quantity == "seconds" else quantity) or run.number("steps") or 0.0
    return total * np.arange(1, length + 1) / max(1, length)


def common(study: StudyData, quantity: str) -> float | None:
    """The largest number that every run reached; None where there is nothing to compare."""
    cells = [(group, p) for group in study.groups for p in group.ranks]
    ends = [float(r[-1]) for run in study.runs if len(r := reached(run, quantity))]
    return min(ends) if len(cells) > 1 and ends else None


def moment(run: Run, quantity: str, limit: float) -> Moment | None:
    """None where the first evaluation came later."""
    found = {name: reached(run, name) for name in QUANTITIES}
    before = np.flatnonzero(found[quantity] <= limit * (1 + 1e-9))
    if not before.size:
        return None
    at = before[-1]
    return Moment(
        float(run.curves["test_accuracy"][at]), {name: float(found[name][at]) for name in QUANTITIES}
    )


def at_equal(study: StudyData) -> list[Table]:
    """The test accuracy of every cell at equal samples, updates or seconds."""
    quantity = study.compare
    limit = common(study, quantity)
    if limit is None:
        return []
    columns = ["cell", "#p", "#runs", "#test accuracy", "#interval", *(f"#{name}" for name in QUANTITIES)]
    rows = [_row(group, p, quantity, limit) for group in study.groups for p in group.ranks]
    return [Table(f"At equal {quantity}: up to {_amount(quantity, limit)}", columns, rows)]


def _row(group: Group, p: int, quantity: str, limit: float) -> list[Cell]:
    runs = group.at(p)
    found = [at for run in runs if (at := moment(run, quantity, limit))]
    said = [group.title, f"{p}*" if group.crowded(p) else str(p), f"{len(found)} of {len(runs)}"]
    if not found:
        return [Cell(text) for text in [*said, "evaluated later", *[formats.NONE] * 4]]
    accuracies = [at.accuracy for at in found]
    said += [formats.percent(middle(accuracies), 2), _interval(accuracies)]
    said += [_amount(name, middle([at.reached[name] for at in found]) or 0.0) for name in QUANTITIES]
    return [Cell(text) for text in said]


def _interval(values: Sequence[float]) -> str:
    """The interval of the order statistics, with the confidence that so few repeats can give."""
    if len(values) < 2:
        return formats.NONE
    found = median_interval(values)
    return f"{found.low * 100:.2f}–{found.high * 100:.2f} % ({found.confidence:.0%})"


def _amount(quantity: str, value: float) -> str:
    return formats.seconds(value) if quantity == "seconds" else formats.count(round(value))


def curves(study: StudyData) -> list[Drawing]:
    """Median test accuracy over samples, updates or seconds, a line per cell."""
    quantity = study.compare
    limit = common(study, quantity)
    cells = [(group, p) for group in study.groups for p in group.ranks]
    if limit is None or len(cells) > _LINES:
        return []
    figure, axes = panel("test accuracy (%)", quantity)
    said = []
    several = len(study.groups) > 1
    for index, (group, p) in enumerate(cells):
        x, y = _line(group.at(p), quantity)
        label = f"{group.label}, {formats.ranks(p)}" if several else formats.ranks(p)
        axes.plot(x, y * 100, color=colour(index), marker=marker(index), markersize=3, lw=1.3, label=label)
        said.append(f"{label} {formats.percent(float(y[-1]), 2)} after {_amount(quantity, float(x[-1]))}")
    axes.axvline(limit, color=colour(0), linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.6)
    title = f"Test accuracy over {quantity}"
    return [
        Drawing(
            name=f"compare-{quantity}",
            title=title,
            description=f"{title}. {'; '.join(said)}.",
            caption="Medians of the repeats at each evaluation. Dashed: "
            f"{_amount(quantity, limit)}, the largest number of {quantity} that every run reached.",
            figure=finish(figure, axes, columns=2),
        )
    ]


def _line(runs: Sequence[Run], quantity: str) -> tuple[Curve, Curve]:
    """Medians over the runs at each evaluation that all of them made."""
    length = min(len(run.curves["test_accuracy"]) for run in runs)
    x = np.median([reached(run, quantity)[:length] for run in runs], axis=0)
    return x, np.median([run.curves["test_accuracy"][:length] for run in runs], axis=0)
