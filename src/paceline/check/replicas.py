"""Are the ranks one training? Who they say they are, their parameters, their BatchNorm statistics."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from paceline.check.judge import Finding
from paceline.check.observations import Rank, Sketch, distance

_SAME = 1e-6  # the same bits give 0; sums in another order a few 1e-7
_SAME_STATISTICS = 1e-5


def same_rank(ranks: Sequence[Rank]) -> Finding | None:
    """Does more than one rank take itself for rank 0?"""
    if len(ranks) < 2 or any(rank.shared for rank in ranks):
        return None
    said = [rank.joined or rank.joining for rank in ranks]
    if all(place is None for place in said):
        if any(rank.steps == 0 for rank in ranks):
            return None
        evidence = f"{len(ranks)} ranks trained, and none called init_process_group: each is rank 0 of 1"
    elif all(place is not None and place[0] == 0 for place in said):
        evidence = (
            f"all {len(ranks)} ranks call init_process_group as rank 0 of {said[0][1] if said[0] else 1}"
        )
    else:
        return None
    return Finding(
        "same_rank",
        "all ranks claim rank 0",
        evidence,
        "call torch.distributed.init_process_group() without rank and world_size: the launcher has set them",
    )


def replicas_drift(ranks: Sequence[Rank]) -> Finding | None:
    """Do parameters differ, and never meet again? (Averaging them now and then is a way to train.)"""
    if any(rank.shared for rank in ranks):
        return None
    apart = [(step, _apart([rank.replicas[step] for rank in ranks])) for step in _steps(ranks)]
    differ = [step for step, difference in apart if difference > _SAME]
    if (
        not differ
        or _met(ranks)
        or any(step > differ[0] for step, difference in apart if difference <= _SAME)
    ):
        return None
    step, difference = apart[-1]
    by = f"by {difference:.1e} of their length before step {step}"
    if differ[0] == 0:
        evidence = f"parameters differ before the first step, {by}"
        fix = "give every rank rank 0's parameters before the first step: wrap the model, or broadcast them"
    else:
        evidence = f"parameters agree up to step {differ[0] - 1}, and differ {by}"
        fix = "make the same update everywhere: the same gradients and the same learning rate on all ranks"
    return Finding("replicas_drift", "replicas drift apart", evidence, fix)


def _met(ranks: Sequence[Rank]) -> bool:
    """Ranks that made different numbers of steps (one ran out of samples): did they have the same states?"""
    if len({len(rank.replicas) for rank in ranks}) == 1:
        return False
    return all(_had(a, b) or _had(b, a) for a, b in itertools.combinations(ranks, 2))


def _had(a: Rank, b: Rank) -> bool:
    """Was b's last state one of a's?"""
    last = b.replicas[max(b.replicas)]
    return any(distance(last, state) <= _SAME for state in a.replicas.values())


def drifts(ranks: Sequence[Rank]) -> bool:
    return replicas_drift(ranks) is not None


def _steps(ranks: Sequence[Rank]) -> list[int]:
    return sorted(set.intersection(*(set(rank.replicas) for rank in ranks)) if len(ranks) > 1 else ())


def _apart(sketches: Sequence[Sketch]) -> float:
    return max(distance(a, b) for a, b in itertools.combinations(sketches, 2))


def batchnorm_differs(ranks: Sequence[Rank]) -> Finding | None:
    """Do ranks evaluate with different statistics? Without an evaluation: do they leave different ones?"""
    for when, at in (("eval", "in an evaluation"), ("end", "when the script ends")):
        seen = _statistics(ranks, when)
        if not seen:
            continue
        worst = max(seen)
        if worst[0] <= _SAME_STATISTICS:
            return None
        if when == "end" and max(_statistics(ranks, "train"), default=worst)[0] <= _SAME_STATISTICS:
            return None  # as DistributedDataParallel leaves them: made equal at the next call
        return Finding(
            "batchnorm_differs",
            "BatchNorm statistics differ between ranks",
            f"running means and variances differ by {worst[0]:.1e} of their length {at} (step {worst[1]})",
            "use SyncBatchNorm, or broadcast or average the buffers before evaluating and saving",
        )
    return None


def _statistics(ranks: Sequence[Rank], when: str) -> list[tuple[float, int]]:
    """(how far apart, before which step of rank 0), look by look: the n-th of one rank is the n-th of all."""
    if len(ranks) < 2:
        return []
    looks = ([(step, sketch) for kind, step, sketch in rank.norms if kind == when] for rank in ranks)
    return [(_apart([sketch for _, sketch in at]), at[0][0]) for at in zip(*looks, strict=False)]
