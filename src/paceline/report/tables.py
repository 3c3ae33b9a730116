"""The tables of a report: one function each, from measurements to a list of `Table`s. Nothing is written.

A cell is text, or text with the file it comes from; how it looks is the business of page and markdown.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.report import formats
from paceline.report.measured import PHASES, Group, Run, StudyData


@dataclass(frozen=True)
class Cell:
    """Text, and the file or folder it comes from."""

    text: str
    target: Path | None = None


@dataclass(frozen=True)
class Table:
    """Columns named once; a name that begins with `#` is a column of numbers, set to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False

    @property
    def heads(self) -> list[tuple[str, bool]]:
        return [(name.removeprefix("#"), name.startswith("#")) for name in self.columns]

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name, _ in self.heads)
        rows = ("".join(f"<td>{html.escape(cell.text)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return (
            f"<table><caption>{html.escape(self.title)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def scaling(study: StudyData) -> list[Table]:
    """Time, speed-up, efficiency, serial fraction, accuracy and updates by p."""
    columns = ["#p", "#runs", "#time", "#spread", "#samples/s", "#speed-up", "#95 % interval"]
    columns += ["#efficiency", "#Karp–Flatt", "#train acc.", "#test acc.", "#updates", "#global batch"]
    return [
        Table(group.title, columns, [_cells(_scaling_row(group, p)) for p in group.ranks])
        for group in study.compared
    ]


def _scaling_row(group: Group, p: int) -> list[str]:
    seconds = group.values(p, "train_seconds")
    serial = (group.law.get("serial_fraction") or {}).get(str(p))
    return [
        _starred(group, p),
        str(len(group.at(p))),
        formats.seconds(group.median(p, "train_seconds")),
        f"{formats.seconds(min(seconds))} to {formats.seconds(max(seconds))}"
        if len(seconds) > 1
        else formats.NONE,
        formats.rate(group.rate(p)),
        formats.times(group.speedup(p)),
        formats.between(group.speedup_interval(p)),
        formats.percent(group.efficiency(p), 0),
        formats.NONE if serial is None else f"{serial:.3f}",
        formats.percent(group.median(p, "train_accuracy"), 2),
        formats.percent(group.median(p, "test_accuracy"), 2),
        formats.count(group.median(p, "steps")),
        formats.count(group.median(p, "global_batch")),
    ]


def fits(study: StudyData) -> list[Table]:
    """The laws fitted to each group: parameters with 95 % intervals, error of the fit, and which applies."""
    columns = ["law", "formula", "parameters (95 % interval)", "#error of the times", "applies"]
    tables = []
    for group in study.compared:
        rows = [
            _fit_row(name, fit, group.law.get("law")) for name, fit in (group.law.get("fits") or {}).items()
        ]
        if rows:
            tables.append(Table(f"Fitted laws: {group.title}", columns, [_cells(row) for row in rows]))
    return tables


def _fit_row(name: str, fit: Mapping[str, Any], applies: str | None) -> list[str]:
    title = str(fit.get("law") or name)
    error = fit.get("rmse")
    return [
        title[:1].upper() + title[1:],
        str(fit.get("formula") or ""),
        _parameters(fit.get("parameters") or {}, fit.get("intervals") or {}),
        formats.NONE if error is None else f"±{formats.percent(float(error))}",
        "yes" if name == applies else "",
    ]


def _parameters(values: Mapping[str, float], intervals: Mapping[str, Sequence[float]]) -> str:
    """`f = 0.36 (0.31 to 0.41)`."""
    said = []
    for name, value in values.items():
        bounds = intervals.get(name)
        said.append(f"{name} = {value:.3g}" + (f" ({bounds[0]:.3g} to {bounds[1]:.3g})" if bounds else ""))
    return ", ".join(said) or formats.NONE


def phases(study: StudyData) -> list[Table]:
    """Seconds of each phase by p, in the repeat with the median time."""
    columns = ["#p", *(f"#{phase}" for phase in PHASES), "#training time"]
    return [
        Table(
            f"Time split: {group.title}",
            columns,
            [_cells(_phase_row(group, p)) for p in group.ranks],
            folded=True,
        )
        for group in study.groups
    ]


def _phase_row(group: Group, p: int) -> list[str]:
    run = group.typical(p)
    whole = run.number("train_seconds")
    parts = [_share(run.number(f"{phase}_seconds"), whole) for phase in PHASES]
    return [_starred(group, p), *parts, formats.seconds(whole)]


def _share(seconds: float | None, whole: float | None) -> str:
    """`1.2 s · 9 %`."""
    if seconds is None or not whole:
        return formats.seconds(seconds)
    return f"{formats.seconds(seconds)} · {formats.percent(seconds / whole, 0)}"


def memory(study: StudyData) -> list[Table]:
    """Peak of the largest rank and the node in proportion, medians over the repeats."""
    columns = ["#p", "#peak of the largest rank", "#whole node, proportional", "#data, one copy a node"]
    return [
        Table(f"Memory: {group.title}", columns, [_cells(_memory_row(group, p)) for p in group.ranks])
        for group in study.groups
    ]


def _memory_row(group: Group, p: int) -> list[str]:
    sizes = (*group.memory(p), group.median(p, "data_bytes"))
    return [_starred(group, p), *(formats.bytes_(size) for size in sizes)]


def targets(study: StudyData) -> list[Table]:
    """Median training seconds until each target, and by how many repeats it was reached."""
    columns = ["#p", *(f"#to {formats.target(float(target))}" for target in study.targets)]
    return [
        Table(
            f"Training time to a test accuracy: {group.title}",
            columns,
            [
                _cells([_starred(group, p), *(_reached(group.at(p), t) for t in study.targets)])
                for p in group.ranks
            ],
        )
        for group in study.groups
        if study.targets
    ]


def _reached(runs: Sequence[Run], target: str) -> str:
    """The median of those that arrived; how many did where not all did."""
    arrived = sorted(s for run in runs if (s := run.seconds_to(target)) is not None)
    if not arrived:
        return "not reached"
    some = f" ({len(arrived)} of {len(runs)})" if len(arrived) < len(runs) else ""
    return formats.seconds(arrived[(len(arrived) - 1) // 2]) + some


def cells(study: StudyData) -> list[Table]:
    """Every cell with the file its numbers come from; failed and missing ones too."""
    columns = ["cell", "scaling", "strategy", "collective", "#p", "#batch per rank", "#global batch", "#seed"]
    columns += ["#training time", "#samples/s", "#train accuracy", "#test accuracy", "status"]
    rows = [_cell_row(run) for run in study.runs]
    for failure in study.failures:
        status = "failed" if failure.folder else "missing"
        rows.append([Cell(failure.id, failure.folder), *_cells([""] * (len(columns) - 2)), Cell(status)])
    return [
        Table(f"All {len(rows)} cells" if len(rows) > 1 else "The run", columns, rows, folded=len(rows) > 12)
    ]


def _cell_row(run: Run) -> list[Cell]:
    texts = [
        run.text("scaling") or formats.NONE,
        run.text("strategy"),
        run.text("collective"),
        f"{run.ranks}*" if run.crowded else str(run.ranks),
        formats.count(run.number("batch")),
        formats.count(run.number("global_batch")),
        run.text("seed"),
        formats.seconds(run.number("train_seconds")),
        formats.rate(run.number("samples_per_second")),
        formats.percent(run.number("train_accuracy"), 2),
        formats.percent(run.number("test_accuracy"), 2),
        run.text("status") or "done",
    ]
    return [Cell(run.id, run.folder / "summary.json"), *_cells(texts)]


def _starred(group: Group, p: int) -> str:
    return f"{p}*" if group.crowded(p) else str(p)


def _cells(texts: Iterable[str]) -> list[Cell]:
    return [Cell(text) for text in texts]
