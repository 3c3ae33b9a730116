"""What makes a comparison unfair, or its numbers weak; each warning is one line that begins with its code.

super-linear          more than p times as fast: the baseline was slowed by something else
global batch changed  samples an update differ         updates changed   so do the updates in the run
threads changed       ranks replace threads            oversubscribed    more ranks (or threads) than cores
accuracy lost         the time was bought with it      noisy             the repeats spread too far
baseline missing      one rank was not measured
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.study.laws_measured import LOST_POINTS, NEAR, Measured


def warnings(measured: Measured) -> list[str]:
    """All that apply, the gravest first."""
    checks = (
        _super_linear,
        _global_batch,
        _updates,
        _threads,
        _oversubscribed,
        _accuracy,
        _noisy_times,
        _noisy_accuracy,
        _baseline,
    )
    return [line for check in checks if (line := check(measured))]


def ranks_of(p: int) -> str:
    """`1 rank`, `2 ranks`."""
    return "1 rank" if p == 1 else f"{p} ranks"


def cores_of(measured: Measured) -> str:
    """`1 core`, `2 cores`."""
    return "1 core" if measured.cores == 1 else f"{measured.cores} cores"


def listed(words: Sequence[object]) -> str:
    """`2, 4 and 8`."""
    texts = [str(word) for word in words]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _super_linear(measured: Measured) -> str | None:
    found = [
        f"{ranks_of(p)} are {measured.speedup[p].value:.2f} times as fast as {ranks_of(measured.baseline)}"
        for p in measured.super_linear
    ]
    why = "sharing the work cannot give more than the ideal, so the baseline lost time to something else"
    return f"super-linear: check the baseline: {listed(found)}; {why}" if found else None


def _global_batch(measured: Measured) -> str | None:
    sizes = {p: p * batch for p, batch in measured.batches.items() if p in measured.times}
    changed = [p for p in sizes if abs(sizes[p] / sizes[min(sizes)] - 1) > 1e-6]
    if not changed:
        return None
    first, kind = min(sizes), measured.batch_scaling
    there = listed([f"{ranks_of(p)} × {_count(measured.batches[p])} = {_count(sizes[p])}" for p in changed])
    tail = {
        "strong": f"less than {100 * NEAR:g} % apart, yet not the same training",
        "weak": "that is weak scaling, where accuracy has to be compared too",
        "neither": "that is neither strong nor weak scaling",
    }[kind or "neither"]
    if measured.declared and kind in ("strong", "weak") and kind != measured.declared:
        tail = f"that is {kind} scaling, not {measured.declared}"
    here = f"{ranks_of(first)} × {_count(measured.batches[first])} = {_count(sizes[first])} samples an update"
    return f"global batch changed: {here}, {there}; {tail}"


def _updates(measured: Measured) -> str | None:
    counts = {p: count for p, count in measured.updates.items() if p in measured.times}
    changed = [p for p in counts if counts[p] != counts[min(counts)]]
    if not changed:
        return None
    first = min(counts)
    there = listed([f"{ranks_of(p)} {_count(counts[p])}" for p in changed])
    fewer = any(counts[p] < counts[first] for p in changed)
    tail = "; fewer updates at the same learning rate train less" if fewer else ""
    makes = "makes" if first == 1 else "make"
    return f"updates changed: {ranks_of(first)} {makes} {_count(counts[first])}, {there}{tail}"


def _threads(measured: Measured) -> str | None:
    counts = {p: count for p, count in measured.threads.items() if p in measured.times}
    if len(set(counts.values())) < 2:
        return None
    each = listed([f"{_count(count)} at {ranks_of(p)}" for p, count in counts.items()])
    return f"threads changed: threads in each rank are {each}; ranks replace threads that the baseline had"


def _oversubscribed(measured: Measured) -> str | None:
    found = measured.oversubscribed
    if not found:
        return None
    threads = {measured.threads.get(p, 1) for p in found}
    each = "" if threads == {1} else f" with {listed([_count(t) for t in sorted(threads)])} threads each"
    why = "these times show the machine's limit, not the program's"
    return f"oversubscribed: {listed(found)} ranks{each} share {cores_of(measured)}; {why}"


def _accuracy(measured: Measured) -> str | None:
    found = [
        f"{drop.value:.2f} points at {ranks_of(p)}"
        + (f" ({drop.interval[0]:.2f} to {drop.interval[1]:.2f})" if drop.interval else "")
        for p, drop in measured.lost_accuracy.items()
    ]
    below = f"below {ranks_of(measured.baseline)}"
    return f"accuracy lost: {listed(found)} {below}; the times do not buy the same result" if found else None


def _noisy_times(measured: Measured) -> str | None:
    """The interval holds 1, and not because the speed-up is known to be 1."""
    found = [
        f"{interval[0]:.2f} to {interval[1]:.2f} at {ranks_of(p)}"
        for p, (_, interval) in measured.speedup.items()
        if interval and interval[0] < 1 < interval[1] and interval[1] / interval[0] > (1 + NEAR) ** 2
    ]
    if not found:
        return None
    return (
        f"noisy: the repeats put the speed-up anywhere from {listed(found)}; repeat more, on an idle machine"
    )


def _noisy_accuracy(measured: Measured) -> str | None:
    unclear = {p: d for p, d in measured.below_baseline.items() if p not in measured.lost_accuracy}
    found = [f"{drop.value:.2f} points at {ranks_of(p)}" for p, drop in unclear.items()]
    why = f"a loss of more than {LOST_POINTS:g} points that the spread of the repeats could explain"
    return f"noisy: accuracy is lower by {listed(found)}: {why}; repeat more" if found else None


def _baseline(measured: Measured) -> str | None:
    if measured.baseline == 1:
        return None
    against = f"speed-up and efficiency are relative to {ranks_of(measured.baseline)}"
    return f"baseline missing: 1 rank was not measured; {against}"


def _count(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,g}"
