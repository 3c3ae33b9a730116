"""From what the ranks saw to rows: pure arithmetic on numbers, no torch, no processes.

pass            one forward and one backward
seconds         (last end - last start) / passes of a block: the pass of all ranks together
times BatchNorm seconds / those of BatchNorm1d on the whole batch in one process, round by round
added           seconds - those of BatchNorm1d on each rank's own share: what synchronising costs
less added      what the same mathematics over gloo adds / what this adds; unknown where that is not > 0
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.bench import Row
from paceline.bench._allreduce_rows import block_seconds
from paceline.metrics.measure import Interval, median_interval, ratio

WHOLE = "BatchNorm1d"
"""On the whole batch in one process: what a program without ranks does."""
SHARE = "BatchNorm1d, shares"
"""On each rank's share, nothing sent: not the same mathematics, but the floor of what a rank has to do."""
OURS = "ours, shm"
OURS_GLOO = "ours, gloo"
PLAIN_GLOO = "same mathematics, gloo"
TORCH = "torch.nn.SyncBatchNorm"
CASES = (WHOLE, OURS, OURS_GLOO, PLAIN_GLOO, TORCH, SHARE)

Sample = Sequence[float]  # start, end, seconds in forward, CPU seconds


def rows_of(found: Sequence[Mapping[str, Any]], peaks: Mapping[tuple[str, int, int], int]) -> list[Row]:
    """The rows of one world, cells and cases in order, from what each of its ranks left."""
    rows = []
    for cells in zip(*(rank["cells"] for rank in found), strict=True):
        seconds = {label: _seconds(cells, label) for label in cells[0]["samples"]}
        for label in (label for label in CASES if label in seconds):
            rows.append(_row(cells, label, seconds, peaks))
    return rows


def _of_ranks(cells: Sequence[Mapping[str, Any]], label: str) -> list[list[Sample]]:
    """Round by round, the samples of the ranks that took part."""
    taking_part = [cell["samples"][label] for cell in cells if label in cell["samples"]]
    return [list(samples) for samples in zip(*taking_part, strict=True)]


def _seconds(cells: Sequence[Mapping[str, Any]], label: str) -> list[float]:
    passes = cells[0]["passes"][label]
    return [block_seconds(samples, passes) for samples in _of_ranks(cells, label)]


def _row(
    cells: Sequence[Mapping[str, Any]],
    label: str,
    seconds: Mapping[str, Sequence[float]],
    peaks: Mapping[tuple[str, int, int], int],
) -> Row:
    cell, passes = cells[0], cells[0]["passes"][label]
    time = median_interval(seconds[label])
    rounds = _of_ranks(cells, label)
    forward = statistics.median(max(sample[2] for sample in samples) for samples in rounds) / passes
    row: Row = {
        "case": label,
        "ranks": len(cells),
        "features": cell["features"],
        "batch": cell["batch"],
        "median_us": time.median * 1e6,
        "low_us": time.low * 1e6,
        "high_us": time.high * 1e6,
        "forward_us": forward * 1e6,
        "backward_us": (time.median - forward) * 1e6,
        "rounds": time.n,
        "passes_a_round": passes,
        "cpu_us": statistics.median(sum(s[3] for s in samples) for samples in rounds) / passes * 1e6,
        "kept_bytes": max(c["kept"].get(label, 0) for c in cells),
        "peak_bytes": peaks.get((label, cell["features"], cell["batch"])),
        "messages": cell["messages"].get(label),
        "max_error": max((c["error"][label] for c in cells if label in c["error"]), default=None),
    }
    row |= _interval("times_batchnorm", ratio(seconds[label], seconds[WHOLE]))
    if label not in (WHOLE, SHARE):
        added, gloo = _added(seconds, label), _added(seconds, PLAIN_GLOO)
        row |= _interval("added_us", added)
        row |= less_added(median_interval(gloo), median_interval(added))
    return row


def _added(seconds: Mapping[str, Sequence[float]], label: str) -> list[float]:
    """In microseconds, round by round."""
    return [1e6 * (a - b) for a, b in zip(seconds[label], seconds[SHARE], strict=True)]


def less_added(gloo: Interval, this: Interval) -> dict[str, float | None]:
    """The quotient of two medians; its ends are those of the intervals, taken against each other."""
    return {
        "less_added": gloo.median / this.median if this.median > 0 else None,
        "less_added_low": gloo.low / this.high if this.high > 0 else None,
        "less_added_high": gloo.high / this.low if this.low > 0 else None,
    }


def _interval(name: str, values: Sequence[float]) -> dict[str, float]:
    found = median_interval(values)
    return {name: found.median, f"{name}_low": found.low, f"{name}_high": found.high}
