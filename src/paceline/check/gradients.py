"""Is the gradient that is used the one a single process would have on the whole batch?

    own_r     rank r's gradient before anything was sent        used_r    what its optimizer was given
    all       = sum of own_r over the ranks
    used      = a · all            a is found by least squares; nothing is said where this does not hold
    one process, the same script, all samples of the step in one batch:
        the loss is a mean   all, each own_r weighted by its part of the samples: a = 1/p
        the loss is a sum    all itself:                                          a = 1

The script may have divided its loss already (by p, by the micro-batches of a step): what its loss function
gave and what backward started from tell by how much. Everything is done with sketches, which are linear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.check.judge import Finding
from paceline.check.observations import Rank, Sketch, combined, distance, length
from paceline.check.replicas import drifts

_ALIKE = 0.02  # compression to 8 bits of mantissa stays below
_CLEAN = 2e-3  # how near a ratio of losses must be to one that means something

Gradients = Sequence[Mapping[str, Any]]  # of one step, rank by rank


def never_averaged(ranks: Sequence[Rank]) -> Finding | None:
    """Does every rank use its own gradient, and never meet the others in another way?"""
    found = steps(ranks)
    alone = [
        all(_near(g["used"], g["own"]) for g in gradients) and not _right(gradients) for gradients in found
    ]
    if not alone or not all(alone) or not drifts(ranks):
        return None
    own = [g["own"] for g in found[0]]
    return Finding(
        "never_averaged",
        "gradients are never averaged",
        f"in {len(alone)} of {len(alone)} steps every rank used its own gradient; they differ by "
        f"{max(distance(own[0], other) for other in own[1:]):.1e} of their length, and so do the replicas",
        "wrap the model in DistributedDataParallel, or average the gradients between backward and step",
    )


def wrong_scale(ranks: Sequence[Rank]) -> Finding | None:
    """Is the gradient right but for a factor of p?"""
    factors = [_factor(gradients) for gradients in steps(ranks)]
    known = [factor for factor in factors if factor is not None]
    if not known or len(known) != len(factors):
        return None
    wrong = _power(known[0], len(ranks))
    if not wrong or any(_power(factor, len(ranks)) != wrong for factor in known):
        return None
    times = f"{len(ranks) ** wrong} times" if wrong > 0 else f"1/{len(ranks) ** -wrong} of"
    return Finding(
        "wrong_scale",
        "gradients are scaled wrongly",
        f"the gradient used is {times} the one a single process has on the whole batch ({len(ranks)} ranks, "
        f"{len(known)} of {len(known)} steps, measured factor {known[0]:.3f})",
        "average: divide the sum by WORLD_SIZE, once"
        if wrong > 0
        else "divide once: DistributedDataParallel averages already, so a mean loss needs no division by "
        "WORLD_SIZE and a summed loss has to be multiplied by it",
    )


def steps(ranks: Sequence[Rank]) -> list[Gradients]:
    """The gradients of each step that all ranks have."""
    if len(ranks) < 2:
        return []
    common = sorted(set.intersection(*(set(rank.gradients) for rank in ranks)))
    return [[rank.gradients[step] for rank in ranks] for step in common]


def _near(a: Sketch, b: Sketch) -> bool:
    return distance(a, b) < _ALIKE


def _right(gradients: Gradients) -> bool:
    """Is it the mean, each rank counted once, or by its samples?"""
    own = [g["own"] for g in gradients]
    samples = [_samples(g) for g in gradients]
    even = combined(own, [1 / len(own)] * len(own))
    weighted = combined(own, [n / sum(samples) for n in samples]) if sum(samples) else even
    return all(_near(g["used"], even) or _near(g["used"], weighted) for g in gradients)


def _samples(gradient: Mapping[str, Any]) -> int:
    return sum(int(each["samples"]) for each in gradient["backwards"])


def _factor(gradients: Gradients) -> float | None:
    """How many times the gradient of one process is used; None where the two are not parallel."""
    everything = combined([g["own"] for g in gradients], [1.0] * len(gradients))
    square = sum(x * x for x in everything)
    if not square or not length(everything):
        return None
    used: Sketch = gradients[0]["used"]
    scale = sum(x * y for x, y in zip(used, everything, strict=True)) / square
    if scale <= 0 or not _near(used, [scale * x for x in everything]):
        return None
    backwards = [each for g in gradients for each in g["backwards"]]
    samples = sum(int(each["samples"]) for each in backwards)
    total: float = sum(
        _weight(each, len(gradients), len(gradients[0]["backwards"]), samples) for each in backwards
    )
    if _summed(backwards):
        return scale * total / samples
    count = len(gradients[0]["backwards"])
    factor = scale * total
    return factor / count if _power(factor / count, len(gradients)) == 0 else factor


def _summed(backwards: Gradients) -> bool:
    """Does the script use the sum of its losses, divided by nothing?"""
    return all(
        each["reduction"] == "sum" and each["ratio"] is not None and abs(each["ratio"] - 1) < _CLEAN
        for each in backwards
    )


def _weight(each: Mapping[str, Any], p: int, micro: int, samples: int) -> float:
    """How many means over its batch one backward pass stands for."""
    ratio, own = each["ratio"], each["samples"]
    if ratio is None or not samples or not own:
        return 1.0
    if each["reduction"] == "sum":
        return float(ratio * own)
    meant = (1.0, 1 / p, 1 / micro, 1 / (p * micro), own / samples, p * own / samples)
    return next((m for m in meant if abs(ratio / m - 1) < _CLEAN), 1.0)


def _power(factor: float, p: int) -> int | None:
    """-2, -1, 1 or 2 if the factor is such a power of p; 0 if it is 1; None if it is anything else."""
    return next((k for k in (0, 1, -1, 2, -2) if abs(factor / float(p) ** k - 1) < _ALIKE), None)
