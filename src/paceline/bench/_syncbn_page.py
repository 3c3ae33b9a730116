"""The page of `paceline bench syncbn`: one table, and per number of ranks a figure of time over features.

table     every case of the grid: forward, backward, CPU, memory, error, messages
figures   time of a forward and backward pass over the features, one line a case
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

from paceline.bench import Row, where
from paceline.bench._syncbn_rows import CASES, SHARE, TORCH
from paceline.report import formats, svg
from paceline.report.canvas import Drawing, colour, finish, marker, panel
from paceline.report.content import Section
from paceline.report.tables import Cell, Table

SOURCE = "the rows that --json writes, one a line of the table"
_COLUMNS = (
    "case", "#ranks", "#features", "#batch", "#forward + backward", "#95 % interval", "#forward", "#backward",
    "#× BatchNorm1d", "#95 % interval of ×", "#added", "#less added than gloo",
    "#95 % interval of that", "#CPU", "#kept", "#peak memory", "#messages", "#error",
)  # fmt: skip
_HOW = (
    "Standard normal float32 inputs, no affine; the whole batch is split evenly over the ranks, one thread a "
    "rank; loss: the sum of the outputs over the first half of the whole batch. All cases in turns in the "
    "same processes, inputs rewritten in every round; time from the last rank's start to the last one's end, "
    "median of the rounds. × BatchNorm1d: against BatchNorm1d on the whole batch in one process. Added: "
    "beyond BatchNorm1d on each rank's share, which sends nothing and computes other statistics; less added: "
    "what the same mathematics over gloo adds, divided by that. CPU: seconds of all ranks. Kept: bytes that "
    "backward needs, per rank, the input included. Peak memory: growth of one rank in a world of its own, in "
    "pages. Messages: collectives in forward + backward. Error: largest distance from BatchNorm1d on the "
    "whole batch, of outputs, input gradients and running statistics."
)


def sections(rows: Sequence[Row]) -> list[Section]:
    """What the page shows."""
    shapes = sorted({(row["ranks"], row["batch"]) for row in rows})
    drawings = [drawing for shape in shapes if (drawing := _over_features(rows, *shape))]
    made = [
        _section("numbers", "All numbers", _lead(rows), [_table(rows)], []),
        _section(
            "features",
            "Time over features",
            "Stars: more ranks than cores, so ranks wait for cores too.",
            [],
            drawings,
        ),
    ]
    return [section for section in made if section.tables or section.drawings]


def _section(id: str, title: str, lead: str, tables: Sequence[Table], drawings: Sequence[Drawing]) -> Section:
    return Section(id=id, title=title, lead=lead, source=SOURCE, code="", tables=tables, drawings=drawings)


def _lead(rows: Sequence[Row]) -> str:
    words = [_HOW, *where(rows)]
    if rows and not any(row["case"] == TORCH for row in rows):
        words.append(f"{TORCH} is left out: it needs GPUs, and here are none.")
    return " ".join(words)


def _table(rows: Sequence[Row]) -> Table:
    return Table("SyncBatchNorm", _COLUMNS, [[Cell(text) for text in _cells(row)] for row in rows])


def _cells(row: Row) -> list[str]:
    def seconds(key: str) -> str:
        return formats.seconds(row[key] / 1e6) if row.get(key) is not None else formats.NONE

    messages = row["messages"]
    return [
        row["case"],
        f"{row['ranks']}{'*' * bool(row.get('crowded'))}",
        str(row["features"]),
        str(row["batch"]),
        seconds("median_us"),
        f"{seconds('low_us')} – {seconds('high_us')}",
        seconds("forward_us"),
        seconds("backward_us"),
        formats.times(row["times_batchnorm"]),
        formats.between((row["times_batchnorm_low"], row["times_batchnorm_high"])),
        seconds("added_us"),
        formats.times(row.get("less_added")),
        formats.between((row.get("less_added_low") or nan, row.get("less_added_high") or nan)),
        seconds("cpu_us"),
        formats.bytes_(row["kept_bytes"] or None),
        formats.bytes_(row["peak_bytes"]),
        f"{messages[0]} + {messages[1]}" if messages else formats.NONE,
        formats.NONE if row["max_error"] is None else f"{row['max_error']:.1e}",
    ]


def _over_features(rows: Sequence[Row], ranks: int, batch: int) -> Drawing | None:
    mine = [row for row in rows if (row["ranks"], row["batch"]) == (ranks, batch)]
    sizes = sorted({row["features"] for row in mine})
    if len(sizes) < 2:
        return None
    figure, axes = panel("forward + backward (µs)", "features")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for index, label in enumerate(label for label in CASES if any(row["case"] == label for row in mine)):
        line = [row for row in mine if row["case"] == label]
        style: dict[str, Any] = {"color": colour(index), "marker": marker(index), "markersize": 4.5}
        style["linestyle"] = (0, (3, 1.5)) if label == SHARE else "-"
        axes.plot([r["features"] for r in line], [r["median_us"] for r in line], label=label, **style)
        axes.fill_between(
            [r["features"] for r in line], [r["low_us"] for r in line], [r["high_us"] for r in line],
            color=svg.INK, alpha=0.12, linewidth=0,
        )  # fmt: skip
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    low, high = axes.get_ylim()
    ticks = [step * 10**power for power in range(6) for step in (1, 2, 5)]
    axes.set_yticks(
        [tick for tick in ticks if low <= tick <= high], [str(t) for t in ticks if low <= t <= high]
    )
    star = "*" if mine[0].get("crowded") else ""
    told = [
        f"{r['case']} {formats.seconds(r['median_us'] / 1e6)}" for r in mine if r["features"] == sizes[-1]
    ]
    return Drawing(
        name=f"syncbn-p{ranks}-n{batch}",
        title=f"{formats.ranks(ranks)}{star}, whole batch {batch}",
        description=f"Time of a pass over the features. With {sizes[-1]}: {', '.join(told)}.",
        caption="Median; grey band: 95 % interval; logarithmic. Dashed: nothing is synchronised.",
        figure=finish(figure, axes, columns=2),
    )
