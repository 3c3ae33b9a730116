"""The frame every figure shares: size, axes, legend, markers; and `Drawing`, a figure with its words.

One panel a figure, 340 units wide: two stand side by side on a desk, one fills a phone, and the text
stays readable on both. Only `matplotlib.figure.Figure` is used: no pyplot, no global state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paceline.report import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P")
_WIDTH, _PLOT, _BOTTOM, _LEGEND_ROW, _TOP = 4.7, 2.5, 0.52, 0.235, 0.10  # inches
_LETTERS, _HANDLE = 58, 5  # of a legend's line: what fits, and what a handle takes
_LEFT, _RIGHT = 0.15, 0.985
_LABEL = -0.128  # left of the longest tick label, in widths of the plot
_SMALL, _TEXT = 10.0, 10.2


@dataclass(frozen=True)
class Drawing:
    """One figure: title, description in numbers (its alternative text), caption, and the figure itself."""

    name: str
    title: str
    description: str
    caption: str
    figure: Figure

    @cached_property
    def _drawn(self) -> str:
        return svg.draw(self.figure, self.name)

    @property
    def inline(self) -> str:
        return svg.inline(self._drawn, self.name, self.title, self.description)

    @property
    def standalone(self) -> str:
        return svg.standalone(self._drawn, self.name, self.title, self.description)

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.standalone


def colour(index: int) -> str:
    return svg.SERIES[index % len(svg.SERIES)]


def marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def panel(y_label: str, x_label: str) -> tuple[Figure, Axes]:
    """An empty panel with a faint grid; `finish` gives it the legend and the margins."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _PLOT))
    axes = figure.add_subplot()
    axes.set_xlabel(x_label, fontsize=_TEXT, color=svg.INK)
    axes.set_ylabel(y_label, fontsize=_TEXT, color=svg.INK)
    axes.yaxis.set_label_coords(_LABEL, 0.5)  # a fixed place: long tick labels must not push it out
    axes.tick_params(colors=svg.INK, labelsize=_SMALL, length=3, width=0.6)
    axes.grid(True, axis="y", color=svg.GRID, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(svg.INK)
        spine.set_linewidth(0.6)
    return figure, axes


def finish(figure: Figure, axes: Axes, columns: int = 3) -> Figure:
    """Put the legend above the plot and make the figure as high as plot and legend need."""
    handles, labels = axes.get_legend_handles_labels()
    rows, columns = _arranged([len(label) for label in labels], columns)
    above = _TOP + rows * _LEGEND_ROW
    height = _BOTTOM + _PLOT + above
    figure.set_size_inches(_WIDTH, height)
    figure.subplots_adjust(left=_LEFT, right=_RIGHT, bottom=_BOTTOM / height, top=1 - above / height)
    if labels:
        axes.legend(
            handles, labels, loc="lower left", bbox_to_anchor=(-0.09, 1.0), ncols=columns, frameon=False,
            fontsize=_SMALL, labelcolor=svg.INK, borderaxespad=0.2, columnspacing=0.8, handlelength=1.5,
            labelspacing=0.35, handletextpad=0.5,
        )  # fmt: skip
    return figure


def _arranged(lengths: Sequence[int], most: int) -> tuple[int, int]:
    """(rows, columns) of a legend as wide as the plot; columns are filled from top to bottom."""
    for columns in range(min(most, len(lengths)), 0, -1):
        rows = math.ceil(len(lengths) / columns)
        widths = [max(lengths[i : i + rows]) + _HANDLE for i in range(0, len(lengths), rows)]
        if sum(widths) <= _LETTERS or columns == 1:
            return rows, columns
    return 0, 1


def rank_axis(axes: Axes, ranks: Iterable[int], crowded: Iterable[int], *, log_y: bool = False) -> None:
    """Ticks at the measured p; powers of two are spaced evenly, a star marks more ranks than cores."""
    marks, stars = sorted(set(ranks)), set(crowded)
    if _doubling(marks):
        axes.set_xscale("log", base=2)
        if log_y:
            axes.set_yscale("log", base=2)
    axes.set_xticks(marks, [f"{p}*" if p in stars else str(p) for p in marks])
    axes.minorticks_off()
    if not _doubling(marks):
        axes.set_xlim(marks[0] - 0.3, marks[-1] + 0.3)
    else:
        axes.set_xlim(marks[0] / 1.25, marks[-1] * 1.25)
    if log_y and _doubling(marks):
        low, high = axes.get_ylim()
        steps = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
        axes.set_yticks([2.0**i for i in steps], [f"{2.0**i:g}" for i in steps])
        axes.set_ylim(low, high)


def line(
    axes: Axes, x: Sequence[float], y: Sequence[float], index: int, *, label: str, hollow: Sequence[bool]
) -> None:
    """A measured line in the index-th colour; hollow markers where ranks outnumber cores."""
    from matplotlib.colors import to_rgba

    axes.plot(x, y, color=colour(index), linewidth=1.5, zorder=3)
    for empty in (False, True):
        chosen = [i for i, h in enumerate(hollow) if h == empty]
        style: dict[str, Any] = {"marker": marker(index), "s": 30, "linewidths": 1.4, "zorder": 4}
        face = to_rgba(svg.PAPER) if empty else to_rgba(colour(index))
        axes.scatter(
            [x[i] for i in chosen], [y[i] for i in chosen], facecolor=face, edgecolor=colour(index), **style
        )
    axes.plot([], [], color=colour(index), marker=marker(index), linewidth=1.5, markersize=5, label=label)


def _doubling(marks: Sequence[int]) -> bool:
    return len(marks) > 1 and marks[-1] > 2 and all(p & (p - 1) == 0 for p in marks)
