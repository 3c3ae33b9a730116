"""The figures over p: total time, time to a target, speed-up, efficiency. From measurements to `Drawing`s.

    times         total training time, every repeat a dot, a line per group    a figure per kind of scaling
    targets       training time until an accuracy was reached, likewise        a figure per target and scaling
    speedups      with the ideal line, the fitted laws and 95 % intervals      a figure per group
    efficiencies  the same divided by p                                        a figure per group

Speed-ups, intervals and fitted laws are read from laws.json, not computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from paceline.report import formats, svg
from paceline.report.canvas import Drawing, colour, finish, line, panel, rank_axis
from paceline.report.measured import Group, Run, StudyData, middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Law -> (legend, dash pattern); grey, so that the measurement stays the loudest line.
LAWS = {
    "amdahl": ("Amdahl", (0, (5, 2))),
    "gustafson": ("Gustafson", (0, (1, 1.4))),
    "usl": ("USL", (0, (6, 1.5, 1, 1.5))),
}
LINE = "Line: median; dots: the repeats; bars: lowest to highest."
ABSENT = " A p without a point: not reached."
STAR = " Hollow marker, starred p: more ranks than cores."
Seconds = Callable[[Run], float | None]


def times(study: StudyData) -> list[Drawing]:
    """Total training time by p, absolute."""
    drawn = [
        _by_p(
            _compared(study, scaling), "Total training time", "time", lambda run: run.number("train_seconds")
        )
        for scaling in study.scalings()
    ]
    return [drawing for drawing in drawn if drawing]


def targets(study: StudyData) -> list[Drawing]:
    """Training time until the test accuracy first reached each target."""
    drawn = [
        _by_p(
            _compared(study, scaling),
            f"Training time to {formats.target(float(target))} test accuracy",
            f"target-{target.replace('.', '-')}",
            partial(Run.seconds_to, target=target),
        )
        for target in study.targets
        for scaling in study.scalings()
    ]
    return [drawing for drawing in drawn if drawing]


def _compared(study: StudyData, scaling: str | None) -> list[Group]:
    return [group for group in study.compared if group.key.scaling == scaling]


def _by_p(groups: Sequence[Group], title: str, name: str, seconds: Seconds) -> Drawing | None:
    """A line per group through the medians, a dot per repeat, a bar from lowest to highest."""
    found = {group: by_p for group in groups if (by_p := _seconds(group, seconds))}
    if not found:
        return None
    figure, axes = panel("seconds", "ranks (p)")
    for index, (group, by_p) in enumerate(found.items()):
        _repeats(axes, group, by_p, index)
    rank_axis(axes, {p for group in found for p in group.ranks}, _crowded(found))
    axes.set_ylim(bottom=0)
    kind = groups[0].scaling
    said = [
        f"{group.label}: "
        + ", ".join(f"{formats.ranks(p)} {formats.seconds(middle(v))}" for p, v in by_p.items())
        for group, by_p in found.items()
    ]
    repeated = any(group.repeated for group in found)
    lacking = any(len(by_p) < len(group.ranks) for group, by_p in found.items())
    bars = LINE if repeated else "One run each, no repeats."
    return Drawing(
        name=f"{name}-{kind.replace(' ', '-')}",
        title=f"{title}, {kind}",
        description=f"{title} by number of ranks, {kind}. {'. '.join(said)}.",
        caption=bars + (ABSENT if lacking else "") + (STAR if _crowded(found) else ""),
        figure=finish(figure, axes, columns=2),
    )


def _seconds(group: Group, seconds: Seconds) -> dict[int, list[float]]:
    """p -> one number per repeat; without the p that have none."""
    found = {p: [s for run in group.at(p) if (s := seconds(run)) is not None] for p in group.ranks}
    return {p: values for p, values in found.items() if values}


def _repeats(axes: Axes, group: Group, by_p: dict[int, list[float]], index: int) -> None:
    x = [p * (1 + 0.03 * index) for p in by_p]  # groups stand side by side, not on top of each other
    axes.vlines(
        x, [min(v) for v in by_p.values()], [max(v) for v in by_p.values()], color=colour(index), alpha=0.6
    )
    for at, values in zip(x, by_p.values(), strict=True):
        axes.scatter([at] * len(values), values, s=8, color=colour(index), alpha=0.55, linewidths=0)
    medians = [middle(values) or 0.0 for values in by_p.values()]
    line(axes, x, medians, index, label=group.label, hollow=[group.crowded(p) for p in by_p])


def speedups(study: StudyData) -> list[Drawing]:
    """Speed-up over one rank by p."""
    return [
        _ratio(group, "speed-up", "Speed-up", per_rank=False) for group in study.compared if _known(group)
    ]


def efficiencies(study: StudyData) -> list[Drawing]:
    """Speed-up divided by p: the share of the ideal that is left."""
    return [
        _ratio(group, "efficiency", "Efficiency", per_rank=True) for group in study.compared if _known(group)
    ]


def _known(group: Group) -> dict[int, float]:
    return {p: s for p in group.ranks if (s := group.speedup(p)) is not None}


def _ratio(group: Group, name: str, title: str, *, per_rank: bool) -> Drawing:
    known = _known(group)
    base = group.baseline
    scale = {p: base / p if per_rank else 1.0 for p in range(base, group.ranks[-1] + 1)}
    figure, axes = panel("efficiency (speed-up / p)" if per_rank else "speed-up", "ranks (p)")
    ps = list(known)
    axes.plot(ps, [p / base * scale[p] for p in ps], color=svg.INK, linewidth=0.9, alpha=0.8, label="ideal")
    _fits(axes, group, scale)
    bars = {p: bounds for p in ps if (bounds := group.speedup_interval(p))}
    axes.vlines(
        list(bars), [b[0] * scale[p] for p, b in bars.items()], [b[1] * scale[p] for p, b in bars.items()],
        color=colour(0), linewidth=4, alpha=0.35,
    )  # fmt: skip
    y = [known[p] * scale[p] for p in ps]
    line(axes, ps, y, 0, label="measured", hollow=[group.crowded(p) for p in ps])
    low, high = (0, max(1.08, *y)) if per_rank else (min(1.0, *y) / 1.3, max(ps[-1] / base, *y) * 1.3)
    axes.set_ylim(low, high)  # a wild interval is cut, or it would flatten everything else
    rank_axis(axes, ps, _crowded([group]), log_y=not per_rank)
    title = f"{title}: {group.title}"
    shown = [
        f"{formats.ranks(p)} {v:.2f}" + _within(bars.get(p), scale[p]) for p, v in zip(ps, y, strict=True)
    ]
    return Drawing(
        name=f"{name}-{group.slug}",
        title=title,
        description=f"{title}. {', '.join(shown)}.",
        caption=_measure(group)
        + _bars(bars, scale, (low, high), group)
        + (STAR if _crowded([group]) else ""),
        figure=finish(figure, axes, columns=5),
    )


def _fits(axes: Axes, group: Group, scale: dict[int, float]) -> None:
    """The laws fitted to this group, within what was measured; the one that applies is drawn stronger."""
    for law, (label, dashes) in LAWS.items():
        predicted = ((group.law.get("fits") or {}).get(law) or {}).get("predicted") or {}
        points = {p: float(predicted[str(p)]) * scale[p] for p in scale if predicted.get(str(p)) is not None}
        if points:
            width = 1.6 if law == group.law.get("law") else 0.9
            x, y = list(points), list(points.values())
            axes.plot(x, y, color=svg.INK, linewidth=width, linestyle=dashes, label=label)


def _measure(group: Group) -> str:
    """What the ratio is a ratio of."""
    kind = f"{group.scaling}: ".capitalize() if group.key.scaling else ""
    return f"{kind}samples per second relative to {formats.ranks(group.baseline)}."


def _bars(
    bars: Mapping[int, Sequence[float]], scale: Mapping[int, float], shown: tuple[float, float], group: Group
) -> str:
    """What the thick bars are, and whether the plot cuts one."""
    if not bars:
        return "" if group.repeated else " No repeats, so no interval."
    edges = [edge * scale[p] for p, bounds in bars.items() for edge in bounds]
    cut = min(edges) < shown[0] or max(edges) > shown[1]
    return " Thick bar: 95 % interval" + (", cut at the edge of the plot." if cut else ".")


def _within(bounds: tuple[float, float] | None, scale: float) -> str:
    return f" (95 % interval {bounds[0] * scale:.2f} to {bounds[1] * scale:.2f})" if bounds else ""


def _crowded(groups: Sequence[Group] | dict[Group, dict[int, list[float]]]) -> set[int]:
    return {p for group in groups for p in group.ranks if group.crowded(p)}
