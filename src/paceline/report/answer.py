"""The answer a report opens with, group by group: what p bought, what it cost, which law, what to do.

Every sentence follows from the measurements; nothing is a matter of taste. The recommended p is that of
laws.json. Where there is none for exactly these runs (folders were merged), the same rule is applied here:

    kept         median test accuracy not below the baseline's lowest repeat, or less than half a point lost
    recommended  the smallest p within 5 % of the best throughput, among the p that keep the accuracy
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.report import formats
from paceline.report.measured import Group, Run, StudyData, middle

NEAR = 0.05
LOST = 0.005
RULE = (
    "Rule: the recommended p is the smallest within 5 % of the fastest, among the p that are faster than the "
    "baseline beyond the 95 % interval and keep the accuracy: at most half a point of test accuracy below "
    "the baseline, or no more than the repeats scatter."
)

NO_LAW = "No law was fitted: no laws.json is about exactly these runs; report one folder that holds them all."


@dataclass(frozen=True)
class Answer:
    """The four sentences about one group; `p` is the recommended number of ranks."""

    group: Group
    p: int
    bought: str
    cost: str
    law: str
    advice: str

    def parts(self) -> list[tuple[str, str]]:
        """(question, answer), without the empty ones."""
        first = "What it bought" if self.cost else "What was measured"
        named = [(first, self.bought), ("What it cost", self.cost)]
        named += [("Which law", self.law), ("What to do", self.advice)]
        return [(question, text) for question, text in named if text]


@dataclass(frozen=True)
class KeyFigure:
    """One number of the strip at the top."""

    label: str
    value: str
    note: str


def answers(study: StudyData) -> list[Answer]:
    """One answer per group."""
    return [answer(group) for group in study.groups]


def answer(group: Group) -> Answer:
    """What there is to say about one group."""
    p = recommended(group)
    if len(group.ranks) == 1:
        return Answer(group, p, _alone(group), "", "", _alone_advice(group))
    law, advice = _said(group)
    return Answer(group, p, _bought(group), _cost(group), law, advice or _advice(group, p))


def _said(group: Group) -> tuple[str, str]:
    """The verdict of laws.json is two sentences: which law applies, and what to do."""
    if not group.verdict:
        return NO_LAW, ""
    law, stop, advice = group.verdict.rpartition(". ")
    return (f"{law}.", advice) if stop else (advice, "")


def recommended(group: Group) -> int:
    """The p of laws.json, else by the rule at the top of this file."""
    if group.law.get("recommended") in group.ranks:
        return int(group.law["recommended"])
    rates = {p: rate for p in group.ranks if _kept(group, p) and (rate := group.rate(p))}
    near = [p for p, rate in rates.items() if rate >= (1 - NEAR) * max(rates.values())]
    return min(near, default=group.baseline)


def _kept(group: Group, p: int) -> bool:
    """Is the accuracy kept? True where there is nothing to compare with."""
    reached, base = group.median(p, "test_accuracy"), group.values(group.baseline, "test_accuracy")
    if p == group.baseline or reached is None or not base:
        return True
    return reached >= min(min(base), (middle(base) or 0.0) - LOST)


def fastest(group: Group) -> int:
    """The p above the baseline with the highest throughput."""
    above = [p for p in group.ranks if p > group.baseline]
    return max(above, key=lambda p: group.rate(p) or 0.0, default=group.baseline)


def headline(study: StudyData) -> Answer | None:
    """The group that is fastest where it is recommended; it gives the numbers of the strip."""
    found = [answer(group) for group in study.compared or study.groups]
    return max(found, key=lambda said: said.group.rate(said.p) or 0.0, default=None)


def key_figures(study: StudyData) -> list[KeyFigure]:
    """Four numbers that answer the question of the page."""
    first = headline(study)
    if first is None:
        return []
    group, p = first.group, fastest(first.group)
    if len(group.ranks) == 1:
        return _figures_alone(group, group.typical(p))
    bounds = group.speedup_interval(p)
    interval = f"; 95 % interval {formats.between(bounds)}" if bounds else ""
    base = formats.seconds(group.median(group.baseline, "train_seconds"))
    lost = formats.points(_difference(group, p))
    chosen = f"{formats.times(group.speedup(first.p))} at {_percent(group, first.p)}, {group.scaling}"
    return [
        KeyFigure("Speed-up", formats.times(group.speedup(p)), f"{_at(p)}, {group.scaling}{interval}"),
        KeyFigure("Training time", _seconds(group, p), f"{_at(p)}; {base} {_at(group.baseline)}"),
        KeyFigure(
            "Test accuracy", _percent(group, p), f"{_at(p)}; {lost} against {formats.ranks(group.baseline)}"
        ),
        KeyFigure("Recommended", formats.ranks(first.p), chosen),
    ]


def _figures_alone(group: Group, run: Run) -> list[KeyFigure]:
    p = group.ranks[0]
    epochs = formats.count(run.number("epochs"))
    return [
        KeyFigure("Training time", _seconds(group, p), formats.ranks(p)),
        KeyFigure("Test accuracy", _percent(group, p, 2), f"epochs: {epochs}"),
        KeyFigure("Throughput", formats.rate(group.rate(p)), "training samples a second"),
        KeyFigure("Peak memory", formats.bytes_(group.memory(p)[0]), "largest rank"),
    ]


def _bought(group: Group) -> str:
    p, base = fastest(group), group.baseline
    speedup, bounds = group.speedup(p), group.speedup_interval(p)
    if speedup is None:
        return f"{formats.ranks(p)} train in {_seconds(group, p)}; without throughput there is no speed-up."
    within = f" (95 % interval {bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else _no_interval(group)
    start = f"{formats.ranks(p)} train {speedup:.2f} times as fast as {formats.ranks(base)}{within}"
    kept = f", at {_percent(group, p)} test accuracy" if group.median(p, "test_accuracy") is not None else ""
    nothing = "Nothing: " if speedup < 1 else "Nothing for certain: " if bounds and bounds[0] <= 1 else ""
    return f"{nothing}{start}: {_seconds(group, p)} instead of {_seconds(group, base)}{kept}."


def _no_interval(group: Group) -> str:
    return "" if group.repeated else " (no repeats, so no interval)"


def _cost(group: Group) -> str:
    """Accuracy, efficiency, memory and updates at the fastest p."""
    p, base = fastest(group), group.baseline
    parts = []
    if (lost := _difference(group, p)) is not None:
        parts.append(
            f"Test accuracy {formats.points(lost)} ({_percent(group, base, 2)} → {_percent(group, p, 2)})."
        )
    if (left := group.efficiency(p)) is not None:
        parts.append(f"Efficiency {formats.percent(left, 0)} {_at(p)}.")
    here_bytes, base_bytes = group.memory(p)[1], group.memory(base)[1]
    if here_bytes is not None and base_bytes is not None:
        parts.append(
            f"Memory of a node {formats.bytes_(here_bytes)} instead of {formats.bytes_(base_bytes)}."
        )
    here, before = group.median(p, "steps"), group.median(base, "steps")
    if here is not None and before:
        same = abs(here / before - 1) < 0.01
        instead = f", as many as {_at(base)}" if same else f" instead of {formats.count(before)}"
        parts.append(f"{formats.count(here)} updates of the model{instead}.")
    return " ".join(parts)


def _advice(group: Group, p: int) -> str:
    quickest, base = fastest(group), group.baseline
    if p == base:
        start = f"Stay with {formats.ranks(base)}: no larger p is more than 5 % faster at the same accuracy."
    else:
        kept = formats.points(_difference(group, p))
        accuracy = f", accuracy kept ({kept})" if kept != formats.NONE else "; accuracy was not compared"
        speedup = formats.times(group.speedup(p))
        start = f"Use {formats.ranks(p)}: {speedup} the speed of {formats.ranks(base)}{accuracy}."
    here, best = group.rate(p), group.rate(quickest)
    if not here or not best or here >= best:
        return start
    gain = formats.times(group.speedup(quickest))
    if best * (1 - NEAR) <= here:
        return f"{start} {formats.ranks(quickest)} ({gain}) would add less than 5 %."
    lost = formats.points(_difference(group, quickest))
    return f"{start} {formats.ranks(quickest)} are faster ({gain}) but lose accuracy ({lost})."


def _alone(group: Group) -> str:
    p = group.ranks[0]
    run = group.typical(p)
    what = " on ".join(word for word in (run.text("model"), run.text("data")) if word) or "The model"
    kept = f" and reached {_percent(group, p, 2)} test accuracy" if group.values(p, "test_accuracy") else ""
    rate = formats.rate(group.rate(p))
    return f"{what} trained with {formats.ranks(p)} in {_seconds(group, p)} ({rate} samples/s){kept}."


def _alone_advice(group: Group) -> str:
    only = f"Only p = {group.ranks[0]} was measured, so nothing is compared"
    return f"{only}; paceline study --ranks 1,2,4 measures what another rank buys."


def _difference(group: Group, p: int) -> float | None:
    here, base = group.median(p, "test_accuracy"), group.median(group.baseline, "test_accuracy")
    return here - base if here is not None and base is not None else None


def _seconds(group: Group, p: int) -> str:
    return formats.seconds(group.median(p, "train_seconds"))


def _percent(group: Group, p: int, digits: int = 1) -> str:
    return formats.percent(group.median(p, "test_accuracy"), digits)


def _at(p: int) -> str:
    return f"with {formats.ranks(p)}"
