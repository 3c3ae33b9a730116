"""Right, but slow: threads that fight over the cores, and one message a parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from paceline.check.judge import Finding
from paceline.check.observations import Rank

_FEW = 4  # parameters that need no bucket


def threads_fight(ranks: Sequence[Rank]) -> Finding | None:
    """Do the ranks of this machine want more threads than it has cores?"""
    known = [rank.threads for rank in ranks if rank.threads]
    if len(known) < len(ranks) or len(ranks) < 2:
        return None
    wanted, cores = sum(each["threads"] for each in known), known[0]["cores"]
    if wanted <= max(cores, len(ranks)):
        return None
    most = max(1, cores // len(ranks))
    return Finding(
        "threads_fight",
        "threads fight over the cores",
        f"{len(ranks)} ranks compute with {wanted} threads on {cores} usable cores",
        f"torch.set_num_threads({most}) in every rank, or none at all: the launcher sets OMP_NUM_THREADS",
    )


def one_collective_per_parameter(ranks: Sequence[Rank]) -> Finding | None:
    """Does a step send about as many messages as there are parameters, of their sizes?"""
    for rank in ranks:
        sizes = Counter(rank.sizes)
        if len(rank.sizes) < _FEW or len(ranks) < 2:
            continue
        for step, calls in sorted(rank.calls.items()):
            sent = Counter(size for _, size in calls)
            if step and (sent & sizes).total() >= 0.9 * len(rank.sizes):
                name = Counter(name for name, _ in calls).most_common(1)[0][0]
                return Finding(
                    "one_collective_per_parameter",
                    "one collective per parameter",
                    f"step {step} makes {len(calls)} calls, most of {name}, for {len(rank.sizes)} parameters "
                    f"of {min(rank.sizes)} to {max(rank.sizes)} numbers",
                    "send them together: one flat tensor, or DistributedDataParallel, which uses buckets",
                )
    return None
