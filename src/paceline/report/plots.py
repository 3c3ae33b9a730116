"""The figures of one group at a time: accuracy over epochs, where the time goes, memory.

    accuracy   a line per p, band = lowest to highest repeat      a figure per group, for train and test
    phases     the training time, stacked by what it was spent on a figure per group
    memory     peak of the largest rank; all ranks of a node      a figure per group

Pure functions from measurements to `Drawing`s; the figures over p are in scaling_plots.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from paceline.report import formats, svg
from paceline.report.canvas import Drawing, colour, finish, marker, panel
from paceline.report.measured import PHASES, Curve, Group, Run, StudyData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colour of each phase, in the order they are stacked; neighbours differ in lightness too.
SHADES = {"data": 1, "compute": 0, "communicate": 4, "wait": 3, "update": 2, "other": 5}


def accuracy(study: StudyData) -> list[Drawing]:
    """Accuracy over epochs, one line per p."""
    return [
        _accuracy(group, part)
        for group in study.groups
        for part in ("train", "test")
        if any(np.isfinite(run.curves[f"{part}_accuracy"]).any() for run in group.runs)
    ]


def _accuracy(group: Group, part: str) -> Drawing:
    from matplotlib.ticker import MaxNLocator

    figure, axes = panel(f"{part} accuracy (%)", "epoch")
    last = []
    for index, p in enumerate(group.ranks):
        epochs, low, mid, high = band([run.curves[f"{part}_accuracy"] for run in group.at(p)])
        if not epochs.size:
            continue
        axes.fill_between(epochs, low * 100, high * 100, color=colour(index), alpha=0.2, linewidth=0)
        axes.plot(
            epochs, mid * 100, color=colour(index), marker=marker(index), markevery=max(1, len(epochs) // 8),
            markersize=4, linewidth=1.4, label=formats.ranks(p),
        )  # fmt: skip
        last.append(f"{formats.ranks(p)} {formats.percent(mid[-1], 2)}")
    axes.set_ylim(*_limits(group))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    title = f"{part.capitalize()} accuracy per epoch: {group.title}"
    caption = (
        "Line: median of the repeats; band: lowest to highest."
        if group.repeated
        else "One run each, no repeats."
    )
    return Drawing(
        name=f"accuracy-{part}-{group.slug}",
        title=title,
        description=f"{title}. After the last epoch: {', '.join(last)}.",
        caption=caption + _mode(group, part),
        figure=finish(figure, axes, columns=4),
    )


def _limits(group: Group) -> tuple[float, float]:
    """The same for train and test, so that the two panels can be compared by eye."""
    curves = [run.curves[f"{part}_accuracy"] for run in group.runs for part in ("train", "test")]
    every = np.concatenate(curves) * 100
    low, high = float(np.nanmin(every)), float(np.nanmax(every))
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _mode(group: Group, part: str) -> str:
    """Training accuracy taken while the model still learns is another quantity: say so."""
    running = part == "train" and any(run.text("train_accuracy_mode") == "running" for run in group.runs)
    return " A running mean during training, not measured in evaluation mode." if running else ""


def band(curves: Sequence[Curve]) -> tuple[Curve, Curve, Curve, Curve]:
    """(epochs, lowest, median, highest) over the repeats that have the epoch; repeats may end early."""
    columns = []
    for epoch in range(max((len(curve) for curve in curves), default=0)):
        here = [float(c[epoch]) for c in curves if epoch < len(c) and math.isfinite(c[epoch])]
        if here:
            columns.append((epoch + 1, min(here), float(np.median(here)), max(here)))
    table = np.array(columns, dtype=np.float64).reshape(-1, 4)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def phases(study: StudyData) -> list[Drawing]:
    """Where the training time goes: a stacked bar per p, or per rank where there is one p."""
    return [drawing for group in study.groups if (drawing := _phases(group))]


def _phases(group: Group) -> Drawing | None:
    by_rank = len(group.ranks) == 1
    bars = _of_ranks(group.runs[0]) if by_rank else _of_p(group)
    if not any(sum(parts) for parts in bars.values()):
        return None
    figure, axes = panel("seconds", "rank" if by_rank else "ranks (p)")
    bottom = np.zeros(len(bars))
    for index, phase in enumerate(PHASES):
        heights = np.array([parts[index] for parts in bars.values()])
        shade = colour(SHADES[phase])
        axes.bar(
            range(len(bars)),
            heights,
            0.62,
            bottom,
            color=shade,
            edgecolor=svg.PAPER,
            linewidth=0.8,
            label=phase,
        )
        bottom += heights
    _named_bars(axes, list(bars))
    title = f"Where the training time goes: {group.title}"
    said = [
        f"{'rank' if by_rank else 'p ='} {name.rstrip('*')}: {_shares(parts)}" for name, parts in bars.items()
    ]
    what = (
        "Mean over the ranks, in the repeat with the median time."
        if not by_rank
        else f"Each rank of {group.runs[0].id}."
    )
    return Drawing(
        name=f"phases-{group.slug}",
        title=title,
        description=f"{title}. {'; '.join(said)}.",
        caption=what + (" Starred p: more ranks than cores." if any("*" in name for name in bars) else ""),
        figure=finish(figure, axes),
    )


def _of_p(group: Group) -> dict[str, list[float]]:
    """Seconds of each phase for every p, of the repeat with the median time: so the parts add up to it."""
    return {
        _p(group, p): [group.typical(p).number(f"{x}_seconds") or 0.0 for x in PHASES] for p in group.ranks
    }


def _of_ranks(run: Run) -> dict[str, list[float]]:
    """Seconds of each phase for every rank of one run."""
    parts = {phase: list((run.summary.get("phases") or {}).get(phase) or []) for phase in PHASES}
    if any(len(parts[phase]) != run.ranks for phase in PHASES):
        return {"mean": [run.number(f"{phase}_seconds") or 0.0 for phase in PHASES]}
    return {str(rank): [float(parts[phase][rank]) for phase in PHASES] for rank in range(run.ranks)}


def _shares(parts: Sequence[float]) -> str:
    whole = sum(parts) or 1.0
    return ", ".join(
        f"{phase} {part / whole * 100:.0f} %" for phase, part in zip(PHASES, parts, strict=True) if part
    )


def memory(study: StudyData) -> list[Drawing]:
    """Memory by p: the largest rank's peak, and all ranks of a node with shared pages counted once."""
    return [drawing for group in study.groups if (drawing := _memory(group))]


def _memory(group: Group) -> Drawing | None:
    found = {p: group.memory(p) for p in group.ranks}
    if not any(value for pair in found.values() for value in pair):
        return None
    figure, axes = panel("MB", "ranks (p)")
    for index, label in enumerate(("peak of the largest rank", "whole node, proportional")):
        heights = [(pair[index] or 0.0) / 1e6 for pair in found.values()]
        axes.bar(
            np.arange(len(found)) + (index - 0.5) * 0.36, heights, 0.33, color=colour(index), label=label
        )
    _named_bars(axes, [_p(group, p) for p in group.ranks])
    title = f"Memory: {group.title}"
    said = [f"{formats.ranks(p)} {formats.bytes_(a)} and {formats.bytes_(b)}" for p, (a, b) in found.items()]
    return Drawing(
        name=f"memory-{group.slug}",
        title=title,
        description=f"{title}; peak of the largest rank, and the node in proportion. {'; '.join(said)}.",
        caption="Proportional: a page that several ranks share counts once for the node.",
        figure=finish(figure, axes, columns=2),
    )


def _p(group: Group, p: int) -> str:
    return f"{p}*" if group.crowded(p) else str(p)


def _named_bars(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, max(len(names), 3) - 0.4)  # one bar alone does not fill the panel
