"""From what the ranks saw to rows: pure arithmetic on numbers, no torch, no processes.

side        [start, forward done, backward done, end] on every rank, one a round
step        last end - last start
compute     last backward done - last start, of the side that is no strategy
outside     step - compute of the same round; the median of the rounds
times       the reference's median over this one's; its interval by drawing rounds anew (bootstrap)
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.bench import Row
from paceline.metrics.measure import median_interval

COMPUTE = "(compute)"
"""The place of forward and backward alone among the sides: no strategy may be called so."""
_DRAWS = 2000

Rank = Mapping[str, Any]


def rows_of(found: Sequence[Rank], reference: str | None) -> list[Row]:
    """One row a strategy, from what each rank left."""
    labels = [label for label in found[0]["samples"] if label != COMPUTE]
    compute = lasting([rank["samples"][COMPUTE] for rank in found], 2)
    outside = {
        label: [
            whole - alone
            for whole, alone in zip(
                lasting([rank["samples"][label] for rank in found], 3), compute, strict=True
            )
        ]
        for label in labels
    }
    return [
        _row(found, label, compute, outside[label], outside.get(reference) if reference else None)
        for label in labels
    ]


def lasting(ranks: Sequence[Sequence[Sequence[float]]], until: int) -> list[float]:
    """Seconds of each round from the last rank's start to the last rank's moment number `until`."""
    rounds = zip(*ranks, strict=True)
    return [max(times[until] for times in r) - max(times[0] for times in r) for r in rounds]


def _row(
    found: Sequence[Rank],
    label: str,
    compute: Sequence[float],
    outside: Sequence[float],
    reference: Sequence[float] | None,
) -> Row:
    ranks = [rank["samples"][label] for rank in found]
    step, extra = median_interval(lasting(ranks, 3)), median_interval(outside)
    parts = [_phase(ranks, phase) for phase in range(3)]
    quotient = times(reference, outside) if reference else (None, None, None)
    sent = found[0]["sent"][label]
    return {
        "strategy": label,
        "ranks": len(found),
        "rounds": step.n,
        "step_us": step.median * 1e6,
        "step_low_us": step.low * 1e6,
        "step_high_us": step.high * 1e6,
        "compute_us": statistics.median(compute) * 1e6,
        "forward_us": parts[0] * 1e6,
        "backward_us": parts[1] * 1e6,
        "update_us": parts[2] * 1e6,
        "outside_us": extra.median * 1e6,
        "outside_low_us": extra.low * 1e6,
        "outside_high_us": extra.high * 1e6,
        "times_reference": quotient[0],
        "times_reference_low": quotient[1],
        "times_reference_high": quotient[2],
        "collectives_a_step": sent[0] if sent else None,
        "bytes_a_step": sent[1] if sent else None,
    }


def _phase(ranks: Sequence[Sequence[Sequence[float]]], phase: int) -> float:
    """The median over rounds of the mean over ranks."""
    rounds = zip(*ranks, strict=True)
    return statistics.median(statistics.fmean(t[phase + 1] - t[phase] for t in r) for r in rounds)


def times(
    reference: Sequence[float], outside: Sequence[float]
) -> tuple[float | None, float | None, float | None]:
    """How many times less than the reference, with a 95 % interval; unknown unless both are positive."""
    pairs = np.array([reference, outside])
    if np.median(pairs, axis=1).min() <= 0:
        return None, None, None
    drawn = np.random.default_rng(0).integers(0, pairs.shape[1], (_DRAWS, pairs.shape[1]))
    above, below = (np.median(side[drawn], axis=1) for side in pairs)
    drawn_times = np.divide(above.clip(0), below, out=np.full(_DRAWS, np.inf), where=below > 0)
    low, high = np.percentile(drawn_times, [2.5, 97.5], method="nearest")
    value, low, high = (float(x) if np.isfinite(x) else None for x in (_quotient(pairs), low, high))
    return value, low, high


def _quotient(pairs: np.ndarray) -> np.float64:
    above, below = np.median(pairs, axis=1)
    return np.float64(above / below)


def with_memory(row: Row, found: Sequence[Rank]) -> Row:
    """The same row with what the ranks hold, and what the node holds."""
    memory: Row = {
        "uss_bytes_a_rank": max(rank["uss"] for rank in found),
        "pss_bytes_a_node": sum(rank["pss"] for rank in found),
    }
    for kind in ("parameters", "gradients", "optimizer"):
        memory[f"{kind}_bytes_a_rank"] = max(sum(n for _, n in rank[kind]) for rank in found)
        memory[f"{kind}_bytes_a_node"] = sum(_distinct(found, kind).values())
    everywhere = [{place for place, _ in rank["parameters"]} for rank in found]
    shared = set.intersection(*everywhere) if len(found) > 1 else set()
    memory["shared_parameters_bytes"] = sum(
        n for place, n in _distinct(found, "parameters").items() if place in shared
    )
    memory["state_bytes_a_node"] = memory["parameters_bytes_a_node"] + memory["optimizer_bytes_a_node"]
    return row | memory


def _distinct(found: Sequence[Rank], kind: str) -> dict[str, int]:
    """Bytes by the place where they lie, over all ranks."""
    return {place: n for rank in found for place, n in rank[kind]}
