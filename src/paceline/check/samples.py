"""Which samples the ranks took: the same ones, the same order in every epoch, some of them twice.

Two sources: the indices behind the batches of a DataLoader, and checksums of what went into the model, for
scripts that deal their data themselves. Indices are compared only where the ranks' data sets are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from paceline.check.judge import Finding
from paceline.check.observations import Pass, Rank

_MANY = 0.25  # of the samples: a sampler that pads an epoch repeats a few
_STEPS = 5


def same_samples(ranks: Sequence[Rank]) -> Finding | None:
    """Do two ranks train on the same samples?"""
    for a, b in itertools.combinations(ranks, 2):
        evidence = _by_index(a, b) or _by_content(a, b)
        if evidence:
            return Finding(
                "same_samples",
                "ranks train on the same samples",
                evidence,
                "deal the samples out: DataLoader(…, sampler=DistributedSampler(dataset)), or take every "
                "WORLD_SIZE-th sample from number RANK on",
            )
    return None


def _by_index(a: Rank, b: Rank) -> str | None:
    if not a.trained() or not b.trained():
        return None
    first, other = a.trained()[0], b.trained()[0]
    if not comparable(first, other):
        return None
    ours, theirs = _samples(first), _samples(other)
    shared, least = len(ours & theirs), min(len(ours), len(theirs))
    who = f"ranks {a.rank} and {b.rank}"
    if least and shared > _MANY * least:
        return f"{who} share {shared} of their first {least} samples (indices of the same data set)"
    if first.subset == other.subset and _is_whole(first) and _is_whole(other):
        return f"on {who} an epoch is the whole data set of {first.chosen} samples, by {first.sampler}"
    return None


def comparable(a: Pass, b: Pass) -> bool:
    """Are equal indices equal samples?"""
    return a.identity is not None and a.identity == b.identity and bool(a.taken) and bool(b.taken)


def _samples(of: Pass) -> set[int]:
    return set(itertools.chain.from_iterable(of.taken))


def _is_whole(of: Pass) -> bool:
    if of.batches is None or of.chosen is None:
        return False
    batch = len(of.taken[0])
    return of.batches * batch >= of.chosen or (of.drop_last and of.batches == of.chosen // batch)


def _by_content(a: Rank, b: Rank) -> str | None:
    """The same input in the same step, in most of the first steps."""
    steps = sorted(set(a.rows) & set(b.rows))[:_STEPS]
    same = []
    for step in steps:
        ours, theirs = set(a.rows[step]), set(b.rows[step])
        if min(len(ours), len(theirs)) < 2:  # inputs that are all alike tell nothing
            return None
        same.append(len(ours & theirs) > _MANY * min(len(ours), len(theirs)))
    if not steps or sum(same) * 2 <= len(steps):
        return None
    return (
        f"ranks {a.rank} and {b.rank} put the same rows into the model in {sum(same)} of {len(steps)} steps"
    )


def no_reshuffle(ranks: Sequence[Rank]) -> Finding | None:
    """Is every epoch in the same order?"""
    for rank in ranks:
        passes = [each for each in rank.trained() if each.taken]
        evidence = _passes_alike(rank.rank, passes) if passes else _period(rank)
        if evidence:
            sampler = bool(passes) and passes[0].set_epoch
            return Finding(
                "no_reshuffle",
                "epochs are not shuffled anew",
                evidence,
                "call sampler.set_epoch(epoch) before every epoch"
                if sampler
                else "shuffle anew in every epoch: shuffle=True, or DistributedSampler with set_epoch(epoch)",
            )
    return None


def _passes_alike(rank: int, passes: Sequence[Pass]) -> str | None:
    pairs = [(a, b) for a, b in itertools.pairwise(passes) if comparable(a, b) and a.batches != 1]
    if not pairs:
        return None
    for a, b in pairs:
        if any(x != y for x, y in zip(a.taken, b.taken, strict=False)):
            return None
    first = ", ".join(map(str, passes[0].taken[0][:4]))
    return f"rank {rank}: {len(pairs) + 1} epochs begin with the same samples in the same order ({first}, …)"


def _period(rank: Rank) -> str | None:
    """Steps whose input is that of so many steps before, all of them, two at least."""
    rows = [rank.rows[step] for step in sorted(rank.rows)]
    for period in range(2, len(rows) - 1):
        pairs = list(zip(rows, rows[period:], strict=False))
        if len(set(map(tuple, rows[:period]))) > 1 and all(a == b for a, b in pairs):
            return f"rank {rank.rank}: the input of the model repeats every {period} steps, in the same order"
    return None


def padded_evaluation(ranks: Sequence[Rank]) -> Finding | None:
    """Are samples evaluated twice, or not at all, by ranks that share the work?"""
    if len(ranks) < 2:
        return None
    for passes in zip(*(rank.evaluated() for rank in ranks), strict=False):
        first = passes[0]
        if not all(each.exhausted and comparable(first, each) for each in passes):
            continue
        parts = [list(itertools.chain.from_iterable(each.taken)) for each in passes]
        if all(set(part) == set(parts[0]) for part in parts):  # every rank evaluates everything: exact
            continue
        distinct, total = len(set().union(*parts)), sum(map(len, parts))
        if total > distinct:
            return _padded(f"{total} evaluations of {distinct} samples: {total - distinct} counted twice")
        if first.chosen is not None and distinct < first.chosen:
            return _padded(f"{distinct} of {first.chosen} samples were evaluated: the others count nowhere")
    return None


def _padded(evidence: str) -> Finding:
    return Finding(
        "padded_evaluation",
        "the evaluation is not exact",
        evidence,
        "deal the test samples without padding (sample i to rank i % WORLD_SIZE) and add up sums and counts",
    )
