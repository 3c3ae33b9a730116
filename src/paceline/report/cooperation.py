"""What cooperating cost, as tables: messages, waiting and for whom, updates, staleness, agreements.

One table a group, a row per p (the repeat with the median time); a column that has nothing to show in any row
is left out. Staleness, the number of updates by others between reading parameters and changing them, and the
steps between agreements have histograms of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.report import formats
from paceline.report.measured import Group, Run, StudyData
from paceline.report.tables import Cell, Table

Histogram = Mapping[str, int]
_LONGEST = 12  # values of a histogram that are shown one by one


def accounts(study: StudyData) -> list[Table]:
    """Messages, bytes, seconds and updates by p."""
    return [table for group in study.groups if (table := _account(group))]


def _account(group: Group) -> Table | None:
    runs = [group.typical(p) for p in group.ranks]
    filled = {head: texts for head, column in COLUMNS.items() if any(texts := [column(run) for run in runs])}
    if not filled:
        return None
    ps = [f"{p}*" if group.crowded(p) else str(p) for p in group.ranks]
    rows = [
        [Cell(p), *(Cell(texts[at] or formats.NONE) for texts in filled.values())] for at, p in enumerate(ps)
    ]
    return Table(f"Cooperation: {group.title}", ["#p", *filled], rows)


def _total(key: str) -> Callable[[Run], float]:
    """The sum over all ranks; rank 0's where that is all there is."""
    return lambda run: sum(run.numbers(f"{key}_by_rank")) or run.number(_ALONE[key]) or 0.0


_ALONE = {"messages": "messages", "bytes": "bytes_sent"}


def _counted(key: str) -> Callable[[Run], str]:
    return lambda run: formats.count(value) if (value := run.number(key)) else ""


def _waited_for(run: Run) -> str:
    """The ranks that others waited for, most first."""
    seconds = dict(enumerate(run.numbers("waited_for_seconds")))
    worth = [rank for rank in sorted(seconds, key=lambda r: -seconds[r]) if seconds[rank] >= 1e-3]
    return ", ".join(f"rank {rank} {formats.seconds(seconds[rank])}" for rank in worth[:3])


def _per_sample(run: Run) -> str:
    value = run.number("updates_per_sample")
    return f"1 per {formats.significant(1 / value)} samples" if value else ""


def _histogram(key: str) -> Callable[[Run], dict[int, int]]:
    return lambda run: {int(value): int(count) for value, count in (run.summary.get(key) or {}).items()}


def quantile(counts: Mapping[int, int], share: float) -> int:
    """The smallest value that so large a share of the counts does not exceed."""
    left = share * sum(counts.values())
    for value, count in sorted(counts.items()):
        left -= count
        if left <= 1e-9:
            return value
    return max(counts)


def _spread(key: str) -> Callable[[Run], str]:
    """`3 (at most 7)`; nothing where it is always 0."""

    def said(run: Run) -> str:
        counts = _histogram(key)(run)
        return f"{quantile(counts, 0.5)} (at most {max(counts)})" if any(counts) else ""

    return said


def _agreements(run: Run) -> str:
    counts = _histogram("steps_between_agreements")(run)
    return f"{quantile(counts, 0.5)} (at most {max(counts)})" if any(value > 1 for value in counts) else ""


def _positive(write: Callable[[float], str], number: Callable[[Run], float]) -> Callable[[Run], str]:
    return lambda run: write(value) if (value := number(run)) else ""


def _number(key: str) -> Callable[[Run], float]:
    return lambda run: run.number(key) or 0.0


COLUMNS: Mapping[str, Callable[[Run], str]] = {
    "#messages": _positive(formats.count, _total("messages")),
    "#sent": _positive(formats.bytes_, _total("bytes")),
    "#communicating": _positive(formats.seconds, _number("communicate_seconds")),
    "#waiting": _positive(formats.seconds, _number("wait_seconds")),
    "waited for": _waited_for,
    "#updates": _counted("updates"),
    "#update": _per_sample,
    "#staleness, median": _spread("staleness"),
    "#overlapping": _counted("overlapping_updates"),
    "#dropped": _counted("dropped_gradients"),
    "#dealt again": _counted("dealt_again"),
    "lost ranks": lambda run: ", ".join(str(int(rank)) for rank in run.numbers("lost_ranks")),
    "#steps between agreements, median": _agreements,
}


def staleness(study: StudyData) -> list[Table]:
    """How many updates had which staleness, in shares."""
    return _histograms(study, "staleness", "Staleness", lambda counts: any(counts))


def agreements(study: StudyData) -> list[Table]:
    """How many rounds had how many steps, in shares."""
    return _histograms(
        study, "steps_between_agreements", "Steps between agreements", lambda counts: len(counts) > 1
    )


def _histograms(
    study: StudyData, key: str, title: str, worth: Callable[[Mapping[int, int]], bool]
) -> list[Table]:
    tables = []
    for group in study.groups:
        found = {p: counts for p in group.ranks if worth(counts := _histogram(key)(group.typical(p)))}
        if found:
            values = sorted({value for counts in found.values() for value in counts})
            bins = _bins(values)
            columns = ["#p", *(f"#{_named(low, high)}" for low, high in bins)]
            rows = [_shares(str(p), counts, bins) for p, counts in found.items()]
            tables.append(Table(f"{title}: {group.title}", columns, rows, folded=True))
    return tables


def _bins(values: Sequence[int]) -> list[tuple[int, int]]:
    """Each value by itself, or where they are many, twelve bins of equally many values."""
    size = -(-len(values) // _LONGEST)
    return [(values[at], values[min(at + size, len(values)) - 1]) for at in range(0, len(values), size)]


def _named(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}–{high}"


def _shares(p: str, counts: Mapping[int, int], bins: Sequence[tuple[int, int]]) -> list[Cell]:
    total: Any = sum(counts.values())
    inside = [sum(n for value, n in counts.items() if low <= value <= high) for low, high in bins]
    return [Cell(p), *(Cell(formats.percent(n / total) if n else "") for n in inside)]
