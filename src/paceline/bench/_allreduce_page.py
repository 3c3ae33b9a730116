"""The page of `paceline bench allreduce`: one table, then figures over the size and over the ranks.

    time over size     a figure per number of ranks, with intervals     where start-up ends and bytes begin
    time over ranks    a figure per size; a star: more ranks than cores what crowding costs
    bandwidth          against what two processes copy at once              how much there is left to gain
    CPU seconds        over ranks, of all ranks together                    what waiting costs the others

A collective keeps its colour on the whole page; its zero-copy form is the same colour, dashed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from paceline.bench import Row, where
from paceline.bench._allreduce_cases import ZERO_COPY
from paceline.report import formats, svg
from paceline.report.canvas import Drawing, colour, finish, marker, panel, rank_axis
from paceline.report.content import Section
from paceline.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SOURCE = "the rows that --json writes, one a line of the table"
_COLUMNS = (
    "collective", "#ranks", "#elements", "#median", "#95 % interval", "#× native", "#95 % interval of ×",
    "#CPU", "#peak memory", "#messages", "#sent", "#algorithm GB/s", "#bus GB/s", "#of copying", "#error",
)  # fmt: skip

_HOW = (
    "Float32, summed over all ranks of one machine, one thread a rank, all collectives in turns in the same "
    "processes, inputs rewritten in every round. Time: from the last rank's start to the last rank's end; "
    "median of the rounds. × native: how many times as fast as torch's own, the median of the rounds' "
    "quotients. Error: largest deviation of the mean from float64. Peak memory: beyond the tensor itself, "
    "of the rank that needs most. Messages and bytes: what the rank that sends most sends in one call, at "
    "its link, or for native the segments and bytes of its TCP sockets; shared memory sends none."
)


def sections(rows: Sequence[Row]) -> list[Section]:
    """What the page shows; figures need more than one size or more than one number of ranks."""
    made = [
        _section("numbers", "All numbers", _lead(rows), [_table(rows)], []),
        _section("size", "Time over size", "", [], [_over_size(rows, p) for p in _values(rows, "ranks")]),
        _section(
            "ranks",
            "Time over ranks",
            "Hollow markers and stars: more ranks than cores, so ranks wait for cores too.",
            [],
            [_over_ranks(rows, n, *_TIME) for n in _values(rows, "elements")],
        ),
        _section(
            "copying",
            "Against copying",
            "Every rank's tensor has to be read and written once: an all-reduce cannot beat two processes "
            "that copy tensors of this size, measured in the same rounds.",
            [],
            [_bandwidth(rows, p) for p in _values(rows, "ranks") if p > 1],
        ),
        _section(
            "cpu",
            "CPU time",
            "CPU seconds of all ranks together, for one call: what waiting takes from the computation.",
            [],
            [_over_ranks(rows, n, *_CPU) for n in _values(rows, "elements")],
        ),
    ]
    return [section for section in made if section.tables or section.drawings]


def _section(
    id: str, title: str, lead: str, tables: Sequence[Table], drawings: Sequence[Drawing | None]
) -> Section:
    return Section(
        id=id,
        title=title,
        lead=lead,
        source=SOURCE,
        code="",
        tables=tables,
        drawings=[drawing for drawing in drawings if drawing],
    )


def _lead(rows: Sequence[Row]) -> str:
    words = [_HOW, *where(rows)]
    skipped = {label: reason for row in rows for label, reason in row.get("skipped", {}).items()}
    words += [f"Skipped: {label} ({reason})." for label, reason in sorted(skipped.items())]
    if not all(row["same_bits"] for row in rows):
        wrong = sorted({row["collective"] for row in rows if not row["same_bits"]})
        words.append(f"Not the same bits on every rank: {', '.join(wrong)}.")
    return " ".join(words)


def _table(rows: Sequence[Row]) -> Table:
    return Table("All-reduce", _COLUMNS, [[Cell(text) for text in _cells(row)] for row in rows])


def _cells(row: Row) -> list[str]:
    times = (row["times_native_low"], row["times_native_high"])
    sent = row["bytes_sent"]
    return [
        row["collective"],
        f"{row['ranks']}{'*' * bool(row.get('crowded'))}",
        formats.count(row["elements"]),
        formats.seconds(row["median_us"] / 1e6),
        f"{formats.seconds(row['low_us'] / 1e6)} – {formats.seconds(row['high_us'] / 1e6)}",
        formats.times(row["times_native"]),
        formats.NONE if times[0] is None else formats.between(times),
        formats.seconds(row["cpu_us"] / 1e6),
        formats.bytes_(row["peak_bytes"]),
        formats.count(row["messages"]),
        formats.bytes_(sent),
        formats.significant(row["algorithm_gbs"]),
        formats.significant(row["bus_gbs"]),
        formats.percent(row["of_roofline"], 0),
        f"{row['max_error']:.1e}",
    ]


def _values(rows: Sequence[Row], key: str) -> list[int]:
    return sorted({row[key] for row in rows})


def _labels(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["collective"] for row in rows))


def _base(label: str) -> str:
    return label.removesuffix(ZERO_COPY)


def _lines(
    axes: Axes, rows: Sequence[Row], every: Sequence[Row], x: str, y: Callable[[Row], float | None]
) -> None:
    """One line a collective; the colours are those of the whole page."""
    bases = list(dict.fromkeys(_base(label) for label in _labels(every)))
    for label in _labels(rows):
        mine = [(row[x], value, row) for row in rows if row["collective"] == label if (value := y(row))]
        if not mine:
            continue
        index, dashed = bases.index(_base(label)), label.endswith(ZERO_COPY)
        style: dict[str, Any] = {"color": colour(index), "linewidth": 1.5, "markersize": 4.5, "zorder": 3}
        style |= {"marker": marker(index), "linestyle": (0, (3, 1.5)) if dashed else "-"}
        axes.plot([m[0] for m in mine], [m[1] for m in mine], label=label, **style)
        hollow = [m for m in mine if m[2].get("crowded")]
        axes.plot(
            [m[0] for m in hollow], [m[1] for m in hollow], linestyle="none", marker=marker(index), zorder=4,
            markersize=4.5, markerfacecolor=svg.PAPER, markeredgecolor=colour(index),
        )  # fmt: skip


def _over_size(rows: Sequence[Row], p: int) -> Drawing | None:
    mine = [row for row in rows if row["ranks"] == p and row["elements"]]
    if len(_values(mine, "elements")) < 2:
        return None
    figure, axes = panel("time of one call (µs)", "float32 elements")
    axes.set_xscale("log")
    axes.set_yscale("log")
    _lines(axes, mine, rows, "elements", lambda row: row["median_us"])
    for index, label in enumerate(_labels(mine)):
        spread = [row for row in mine if row["collective"] == label]
        axes.fill_between(
            [row["elements"] for row in spread], [row["low_us"] for row in spread],
            [row["high_us"] for row in spread], color=svg.INK, alpha=0.12, linewidth=0, zorder=1 + index / 99,
        )  # fmt: skip
    largest = _values(mine, "elements")[-1]
    return Drawing(
        name=f"allreduce-size-p{p}",
        title=f"Time over size, {formats.ranks(p)}",
        description=f"Time of one all-reduce over its size, {formats.ranks(p)}. "
        + _told(mine, "elements", largest, f"With {largest:,} elements"),
        caption="Median; grey band: 95 % interval. Both axes are logarithmic.",
        figure=finish(figure, axes, columns=4),
    )


_TIME = ("time", "time of one call (µs)", "median_us")
_CPU = ("cpu", "CPU time of one call (µs)", "cpu_us")


def _over_ranks(rows: Sequence[Row], elements: int, name: str, axis: str, key: str) -> Drawing | None:
    mine = [row for row in rows if row["elements"] == elements]
    ranks = _values(mine, "ranks")
    if len(ranks) < 2:
        return None
    figure, axes = panel(axis, "ranks")
    axes.set_yscale("log")
    _lines(axes, mine, rows, "ranks", lambda row: row[key])
    rank_axis(axes, ranks, {row["ranks"] for row in mine if row.get("crowded")})
    what = axis.partition(" (")[0]
    return Drawing(
        name=f"allreduce-{name}-n{elements}",
        title=f"{what[0].upper()}{what[1:]}, {elements:,} elements",
        description=f"{what} over ranks, {elements:,} elements. "
        + _told(mine, "ranks", ranks[-1], f"With {formats.ranks(ranks[-1])}", key),
        caption="Median; the vertical axis is logarithmic. Hollow, starred: more ranks than cores.",
        figure=finish(figure, axes, columns=4),
    )


def _bandwidth(rows: Sequence[Row], p: int) -> Drawing | None:
    mine = [row for row in rows if row["ranks"] == p and row["elements"] and row["roofline_gbs"]]
    sizes = _values(mine, "elements")
    if len(sizes) < 2:
        return None
    figure, axes = panel("tensor bytes of all ranks (GB/s)", "float32 elements")
    axes.set_xscale("log")
    axes.set_yscale("log")
    _lines(axes, mine, rows, "elements", lambda row: p * row["algorithm_gbs"])
    roof = [next(row["roofline_gbs"] for row in mine if row["elements"] == n) for n in sizes]
    axes.plot(sizes, roof, color=svg.INK, linewidth=1.2, linestyle=(0, (1, 1.4)), label="two copies at once")
    return Drawing(
        name=f"allreduce-bandwidth-p{p}",
        title=f"Bandwidth, {formats.ranks(p)}",
        description=f"Bytes of all ranks' tensors a second, {formats.ranks(p)}; two processes copy "
        f"{formats.significant(roof[-1])} GB/s at {sizes[-1]:,} elements.",
        caption="Dotted: two processes copying tensors of this size at once. Small tensors lie in caches.",
        figure=finish(figure, axes, columns=4),
    )


def _told(rows: Sequence[Row], key: str, at: int, words: str, value: str = "median_us") -> str:
    found = [f"{r['collective']} {formats.seconds(r[value] / 1e6)}" for r in rows if r[key] == at]
    return f"{words}: {', '.join(found)}."
