"""The page of `paceline bench step`: the times, then the memory; a figure a model for each.

time      stacked bars: forward and backward alone, and what the strategy adds         who adds least
memory    parameters and optimizer of the whole node over the ranks                    who stays level
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.bench import Row, where
from paceline.bench._step_cases import REFERENCE
from paceline.report import formats, svg
from paceline.report.canvas import Drawing, colour, finish, marker, panel, rank_axis
from paceline.report.content import Section
from paceline.report.tables import Cell, Table

SOURCE = "the rows that --json writes"
_TIMES = (
    "model", "strategy", "#ranks", "#forward", "#backward", "#update", "#step", "#compute alone", "#outside",
    "#95 % interval", f"#× less than {REFERENCE}", "#95 % interval of ×", "#collectives", "#bytes",
)  # fmt: skip
_MEMORY = (
    "model", "strategy", "#ranks", "#parameters a rank", "#of them shared", "#optimizer a rank",
    "#gradients a rank", "#parameters + optimizer a node", "#USS grown a rank", "#PSS grown a node",
)  # fmt: skip
_HOW = (
    "Float32, one thread a rank, all strategies in turns in the same ranks with new inputs in every round. "
    "Step: from the last rank's start to the last rank's end. Compute alone: the same forward and backward "
    "in the same ranks and rounds without any strategy. Outside: step minus compute alone, so communication, "
    "waiting, optimizer and zeroing; medians of the rounds. Forward, backward and update are where the "
    "strategy's calls spend their time, mean of the ranks: a strategy that communicates inside backward has "
    "it there. SGD with momentum: torch_ddp as tutorials construct it, the others fused."
)
_HOW_MEMORY = (
    "Counted: bytes of the tensors, by where the kernel says that they lie; memory that several ranks map "
    "counts once a node. Measured: growth of USS (the rank with most) and PSS (all ranks) from before the "
    "model was built to after its first update, gradients included; small models drown in what else a "
    "process does."
)


def sections(rows: Sequence[Row]) -> list[Section]:
    """What the page shows."""
    timed = [row for row in rows if "step_us" in row]
    weighed = [row for row in rows if "pss_bytes_a_node" in row]
    models = list(dict.fromkeys(row["model"] for row in rows))
    bars = [_bars(timed, model, p) for model in models for p in _ranks(timed, model)]
    lines = [_over_ranks(weighed, model) for model in models if len(_ranks(weighed, model)) > 1]
    made = [
        _section("time", "Time of a step", _lead(timed), _table(_TIMES, timed, _time_cells), bars),
        _section("memory", "Memory", _HOW_MEMORY, _table(_MEMORY, weighed, _memory_cells), lines),
    ]
    return [section for section in made if section.tables[0].rows]


def _section(id: str, title: str, lead: str, table: Table, drawings: Sequence[Drawing]) -> Section:
    return Section(id=id, title=title, lead=lead, source=SOURCE, code="", tables=[table], drawings=drawings)


def _lead(rows: Sequence[Row]) -> str:
    return " ".join([_HOW, *(f"Batch of a rank: {row['batch']}." for row in rows[:1]), *where(rows)])


def _table(columns: Sequence[str], rows: Sequence[Row], cells: object) -> Table:
    assert callable(cells)
    title = "Times" if columns is _TIMES else "Memory"
    return Table(title, columns, [[Cell(text) for text in cells(row)] for row in rows])


def _time_cells(row: Row) -> list[str]:
    quotient = (row["times_reference_low"], row["times_reference_high"])
    return [
        row["model"],
        row["strategy"],
        _crowded(row),
        *(_us(row[f"{key}_us"]) for key in ("forward", "backward", "update", "step", "compute", "outside")),
        f"{_us(row['outside_low_us'])} – {_us(row['outside_high_us'])}",
        formats.times(row["times_reference"]),
        formats.NONE if None in quotient else formats.between(quotient),
        formats.count(row["collectives_a_step"]),
        formats.bytes_(row["bytes_a_step"]),
    ]


def _memory_cells(row: Row) -> list[str]:
    keys = (
        "parameters_bytes_a_rank", "shared_parameters_bytes", "optimizer_bytes_a_rank",
        "gradients_bytes_a_rank", "state_bytes_a_node", "uss_bytes_a_rank", "pss_bytes_a_node",
    )  # fmt: skip
    return [row["model"], row["strategy"], _crowded(row), *(formats.bytes_(row[key]) for key in keys)]


def _crowded(row: Row) -> str:
    return f"{row['ranks']}{'*' * bool(row.get('crowded'))}"


def _us(value: float) -> str:
    return formats.seconds(value / 1e6)


def _ranks(rows: Sequence[Row], model: str) -> list[int]:
    return sorted({row["ranks"] for row in rows if row["model"] == model})


def _bars(rows: Sequence[Row], model: str, p: int) -> Drawing:
    """What the strategy adds, on top of what everybody computes."""
    mine = [row for row in rows if row["model"] == model and row["ranks"] == p]
    figure, axes = panel("time of a step (ms)", "")
    compute = [row["compute_us"] / 1e3 for row in mine]
    outside = [max(0.0, row["outside_us"]) / 1e3 for row in mine]
    axes.bar(range(len(mine)), compute, 0.6, color=svg.GRID, alpha=0.6, label="forward and backward alone")
    axes.bar(range(len(mine)), outside, 0.6, bottom=compute, color=colour(0), label="outside")
    for place, row in enumerate(mine):
        top = compute[place] + outside[place]
        axes.annotate(
            f"+{_us(row['outside_us'])}", (place, top), xytext=(0, 3), textcoords="offset points",
            ha="center", color=svg.INK, fontsize=9,
        )  # fmt: skip
    axes.set_ylim(0, 1.15 * max(c + o for c, o in zip(compute, outside, strict=True)))
    axes.set_xticks(range(len(mine)), [row["strategy"] for row in mine])
    told = [f"{row['strategy']} {_us(row['outside_us'])}" for row in mine]
    return Drawing(
        name=f"step-time-{model}-p{p}",
        title=f"{model}, {formats.ranks(p)}",
        description=f"Time of a step outside forward and backward, {model}, {formats.ranks(p)}: "
        f"{', '.join(told)}.",
        caption="Grey: forward and backward without any strategy. Coloured, with its number: what is added.",
        figure=finish(figure, axes),
    )


def _over_ranks(rows: Sequence[Row], model: str) -> Drawing:
    mine = [row for row in rows if row["model"] == model]
    ranks = _ranks(rows, model)
    figure, axes = panel("parameters + optimizer of the node (MB)", "ranks")
    labels = list(dict.fromkeys(row["strategy"] for row in mine))
    told = []
    for index, label in enumerate(labels):
        line = [row for row in mine if row["strategy"] == label]
        values = [row["state_bytes_a_node"] / 1e6 for row in line]
        axes.plot(
            [row["ranks"] for row in line], values, label=label, color=colour(index), marker=marker(index),
            linewidth=1.5, markersize=5, markerfacecolor=colour(index) if index else svg.PAPER,
        )  # fmt: skip
        told.append(f"{label} {formats.bytes_(values[0] * 1e6)} to {formats.bytes_(values[-1] * 1e6)}")
    axes.set_ylim(bottom=0)
    rank_axis(axes, ranks, {row["ranks"] for row in mine if row.get("crowded")})
    return Drawing(
        name=f"step-memory-{model}",
        title=f"Parameters and optimizer of a node, {model}",
        description=f"Bytes of parameters and optimizer state of all ranks of a node, {model}, "
        f"{formats.ranks(ranks[0])} to {formats.ranks(ranks[-1])}: {', '.join(told)}.",
        caption="Counted where the kernel says that they lie; shared memory once. *: more ranks than cores.",
        figure=finish(figure, axes),
    )
