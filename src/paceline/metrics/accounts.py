"""What cooperating cost, over all ranks: messages, bytes, memory, updates, staleness, who waited for whom.

    end of each journal ─▶ costs, cooperation          arrivals of each step ─▶ waits

Every strategy is asked for the same things; what only some can count is zero or empty for the others.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.stories import Story


def waits(stories: list[Story]) -> NDArray[np.float64] | None:
    """Seconds that rank i waited for rank j to arrive, or None where that cannot be known.

    Each step's waiting is for the rank that came last."""
    clocks = {story.start["boot_id"] for story in stories}
    arrivals = [story.moments("arrive") for story in stories]
    if len(clocks) > 1 or not stories[0].start["in_rounds"] or len({len(a) for a in arrivals}) > 1:
        return None
    arrived, left = np.stack(arrivals), np.stack([story.moments("leave") for story in stories])
    met = ~np.isnan(arrived).any(axis=0)
    arrived, left = arrived[:, met], left[:, met]
    waited = np.maximum(np.minimum(arrived.max(axis=0) - arrived, left - arrived), 0)
    last = arrived.argmax(axis=0) if met.any() else np.zeros(0, int)
    columns = [waited[:, last == rank].sum(axis=1) for rank in range(len(stories))]
    return np.stack(columns, axis=1)


def costs(stories: list[Story]) -> dict[str, Any]:
    """Messages, bytes and memory; of a rank that was lost only that it is unknown."""
    ends = [story.end for story in stories]
    return {
        "messages": ends[0]["messages"],
        "bytes_sent": ends[0]["bytes"],
        "messages_by_rank": [end.get("messages") for end in ends],
        "bytes_by_rank": [end.get("bytes") for end in ends],
        "peak_memory_bytes": [end.get("peak_memory_bytes") for end in ends],
        "proportional_memory_bytes": [end.get("proportional_memory_bytes") for end in ends],
    }


def cooperation(stories: list[Story], samples: int, matrix: NDArray[np.float64] | None) -> dict[str, Any]:
    """What the strategy counted over all ranks: updates, rounds, staleness; and by `waits`, for whom."""
    accounts = [story.end.get("account", {}) for story in stories]
    steps = stories[0].end["steps"]
    updates = next((account["updates"] for account in accounts if "updates" in account), steps)
    waited_for = None if matrix is None else matrix.sum(axis=0).tolist()
    for account in accounts:
        waited_for = account.get("waited_for", waited_for)
    return {
        "updates": updates,
        "updates_per_sample": updates / samples if samples else 0.0,
        "steps_between_agreements": accounts[0].get("steps_between_agreements", {"1": steps}),
        "staleness": _added([account.get("staleness", {}) for account in accounts]),
        "overlapping_updates": sum(account.get("overlapping_updates", 0) for account in accounts),
        "dropped_gradients": sum(account.get("dropped_gradients", 0) for account in accounts),
        "dealt_again": sum(account.get("dealt_again", 0) for account in accounts),
        "waited_for_seconds": waited_for,
    }


def _added(histograms: list[dict[str, int]]) -> dict[str, int]:
    """Of all ranks together, by value."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update({int(value): count for value, count in histogram.items()})
    return {str(value): count for value, count in sorted(total.items())}
