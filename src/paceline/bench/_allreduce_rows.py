"""From what the ranks saw to rows: pure arithmetic on numbers, no torch, no processes.

block      (start, end, CPU seconds) on every rank
seconds    (last end - first of all starts that waits for nobody: the last start) / calls
algorithm bandwidth = bytes of the tensor / seconds
bus bandwidth       = algorithm bandwidth · 2(p-1)/p      what the best possible ring would move a link
roofline            = bytes that two processes copy in a second, each its own tensor, at the same time
of the roofline     = (p · bytes / roofline) / seconds    every rank's tensor is read and written once
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.bench import Row
from paceline.metrics.measure import median_interval, ratio

COPY = "copy"
"""The roofline's place among the cases: no collective may be called so."""
Block = Sequence[float]  # start, end, CPU seconds
WIDTH = 4  # bytes of a float32


def block_seconds(blocks: Sequence[Block], calls: int) -> float:
    """One call, from the moment the last rank began to the moment the last one was done."""
    return (max(block[1] for block in blocks) - max(block[0] for block in blocks)) / calls


def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """Bytes of the tensor a second."""
    return nbytes / seconds


def bus_bandwidth(nbytes: float, seconds: float, ranks: int) -> float:
    """Bytes a second through every rank's link, were it a ring that sends nothing twice."""
    return nbytes / seconds * 2 * (ranks - 1) / ranks


def copy_bandwidth(blocks: Sequence[Block], copies: int, nbytes: float) -> float:
    """What all copying processes move together; those that copied nothing (None) are left out before."""
    return sum(nbytes * copies / max(block[1] - block[0], 1e-9) for block in blocks)


def of_roofline(nbytes: float, seconds: float, ranks: int, roofline: float) -> float:
    """1 would be an all-reduce as fast as copying every rank's tensor once."""
    return ranks * nbytes / roofline / seconds


def rows_of(found: Sequence[Mapping[str, Any]], references: Sequence[str]) -> list[Row]:
    """The rows of one world from what each of its ranks left, sizes and collectives in order."""
    rows = []
    for cells in zip(*(rank["cells"] for rank in found), strict=True):
        seconds = {label: _seconds(cells, label) for label in cells[0]["calls"]}  # as asked for
        roofline = _roofline(cells)
        reference = next((seconds[label] for label in references if label in seconds), None)
        for label in seconds:
            if label != COPY:
                rows.append(_row(cells, label, seconds[label], reference, roofline))
    return rows


def _seconds(cells: Sequence[Mapping[str, Any]], label: str) -> list[float]:
    calls = cells[0]["calls"][label]
    rounds = zip(*(cell["samples"][label] for cell in cells), strict=True)
    return [block_seconds(blocks, calls) for blocks in rounds]


def _roofline(cells: Sequence[Mapping[str, Any]]) -> float | None:
    if COPY not in cells[0]["samples"]:
        return None
    nbytes, copies = WIDTH * cells[0]["elements"], cells[0]["calls"][COPY]
    rounds = zip(*(cell["samples"][COPY] for cell in cells[:2]), strict=True)
    return statistics.median(copy_bandwidth(blocks, copies, nbytes) for blocks in rounds)


def _row(
    cells: Sequence[Mapping[str, Any]],
    label: str,
    seconds: Sequence[float],
    reference: Sequence[float] | None,
    roofline: float | None,
) -> Row:
    cell, ranks = cells[0], len(cells)
    nbytes, calls = WIDTH * cell["elements"], cell["calls"][label]
    time = median_interval(seconds)
    blocks = zip(*(c["samples"][label] for c in cells), strict=True)
    cpu = [sum(block[2] for block in of_ranks) for of_ranks in blocks]
    faster = median_interval(ratio(reference, seconds)) if reference else None
    return {
        "collective": label,
        "ranks": ranks,
        "elements": cell["elements"],
        "median_us": time.median * 1e6,
        "low_us": time.low * 1e6,
        "high_us": time.high * 1e6,
        "rounds": time.n,
        "calls_a_round": calls,
        "cpu_us": statistics.median(cpu) / calls * 1e6,
        "peak_bytes": None,
        "max_error": cell["error"][label],
        "same_bits": cell["same_bits"][label],
        "messages": _most(cells, "messages", label),
        "bytes_sent": _most(cells, "bytes_sent", label),
        "algorithm_gbs": algorithm_bandwidth(nbytes, time.median) / 1e9,
        "bus_gbs": bus_bandwidth(nbytes, time.median, ranks) / 1e9,
        "roofline_gbs": roofline / 1e9 if roofline else None,
        "of_roofline": of_roofline(nbytes, time.median, ranks, roofline) if roofline else None,
        "times_native": faster.median if faster else None,
        "times_native_low": faster.low if faster else None,
        "times_native_high": faster.high if faster else None,
    }


def _most(cells: Sequence[Mapping[str, Any]], what: str, label: str) -> int | None:
    """Of the rank that sends most; None where a rank could not count."""
    values = [cell[what].get(label) for cell in cells]
    return None if None in values else max(values)


def with_peaks(rows: Sequence[Row], peaks: Mapping[tuple[str, int], int]) -> list[Row]:
    """The rows with the peak memory of (collective, elements), where it was measured."""
    return [row | {"peak_bytes": peaks.get((row["collective"], row["elements"]))} for row in rows]
