"""Which law applies, how many ranks to use, and both in sentences that follow from the data.

    speed-up above p (beyond its interval)             no law: the baseline is wrong
    nothing faster than the baseline, beyond intervals no law: there is no speed-up to describe
    too few values of p                                no law, the serial fraction alone
    USL explains markedly more (F-test at 5 %), or     USL: an overhead grows with p
      the largest p is slower than the best one
    weak scaling                                       Gustafson: the work grows with p
    otherwise                                          Amdahl: the work is fixed

Recommended is the smallest p within 5 % of the fastest, among those that are faster than the baseline beyond
their interval and lose no accuracy; the baseline where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.study.laws_fit import LAWS, Fit, markedly_better
from paceline.study.laws_intervals import ratio
from paceline.study.laws_measured import NEAR, Measured
from paceline.study.laws_warnings import cores_of, listed, ranks_of


def choose(measured: Measured, fits: Mapping[str, Fit]) -> str | None:
    """The name of the law that applies, or None."""
    if measured.super_linear or _nothing_shown(measured):
        return None
    simple, usl = fits.get("gustafson" if measured.scaling == "weak" else "amdahl"), fits.get("usl")
    if usl and simple and (markedly_better(usl, simple) or (_turns_back(measured) and usl.knee)):
        return "usl"
    return simple.law.name if simple else None


def recommend(measured: Measured) -> int:
    """The smallest p within 5 % of the fastest, among those that may be recommended."""
    speed = _candidates(measured)
    return min(p for p in speed if speed[p] >= max(speed.values()) * (1 - NEAR))


def _candidates(measured: Measured) -> dict[int, float]:
    """Speed-up of the baseline, and of every p that is surely faster and loses no accuracy."""
    kept = [p for p in measured.faster if p not in measured.lost_accuracy]
    return {p: measured.speedup[p].value for p in (measured.baseline, *kept)}


def verdict(measured: Measured, fits: Mapping[str, Fit], law: str | None, recommended: int) -> str:
    """Two sentences: which law and why, then what to do."""
    if not measured.several:
        return f"Only p = {measured.baseline} was measured: there is nothing to compare."
    return f"{_which(measured, fits, law)} {_advice(measured, recommended)}"


def _which(measured: Measured, fits: Mapping[str, Fit], law: str | None) -> str:
    base = ranks_of(measured.baseline)
    if measured.super_linear:
        beaten = f"{ranks_of(measured.super_linear[0])} beat the ideal"
        return f"No law applies: {beaten}, so the time of {base} is no baseline to compare with."
    if _nothing_shown(measured):
        if measured.unclear:
            return (
                f"No law applies, for the repeats do not show that anything is faster than {base}: "
                f"{_intervals(measured)}."
            )
        slower = [f"{ranks_of(p)} take {1 / measured.speedup[p].value:.2f} times" for p in measured.several]
        return f"No law applies, for nothing is faster than {base}: {listed(slower)} as long."
    if law is None:
        return _too_few(measured)
    reason = {"amdahl": _amdahl, "gustafson": _gustafson, "usl": _usl}[law](measured, fits[law])
    title = LAWS[law].title[0].upper() + LAWS[law].title[1:]
    if measured.oversubscribed:
        shared = f"{listed(measured.oversubscribed)} ranks share {cores_of(measured)}"
        why = "there the curve is the machine's, not the program's"
        return f"{title} fits best ({reason}), but {shared}: {why}."
    return f"{title} applies: {reason}."


def _amdahl(measured: Measured, fit: Fit) -> str:
    fraction = fit.parameters["f"]
    work = "the work is fixed" if measured.scaling else "the work is taken as fixed"
    limit = "nearly all of it is shared"
    if fraction > 0.001:
        limit = f"so no number of ranks gets beyond {1 / fraction:.3g} times the speed of one"
    if _grows(measured.serial_fraction):
        limit = "an overhead that this law leaves out and that these points do not settle"
    return f"{work} and the serial fraction {_course(measured.serial_fraction)}, {limit}"


def _gustafson(measured: Measured, fit: Fit) -> str:
    work = "the work of an update grows with the ranks (weak scaling)"
    gain = f"each further rank adds {1 - fit.parameters['f']:.2f} of a rank"
    return f"{work}, {gain} and the serial share {_course(measured.serial_share)}"


def _usl(measured: Measured, fit: Fit) -> str:
    name, values, simple = "serial fraction", measured.serial_fraction, LAWS["amdahl"]
    if measured.scaling == "weak":
        name, values, simple = "serial share", measured.serial_share, LAWS["gustafson"]
    what = "an overhead" if _grows(values) else "a course"
    knee = f"the maximum near p = {fit.knee:.0f}" if fit.knee else "no maximum within twice the data"
    return f"the {name} {_course(values)}, {what} that {simple.title} leaves out, with {knee}"


def _too_few(measured: Measured) -> str:
    if measured.baseline != 1:
        return "No law can be fitted without a time for 1 rank."
    found = listed([f"{e:z.2f} at {ranks_of(p)}" for p, e in measured.serial_fraction.items()])
    few = f"{len(measured.ranks)} values of p cannot tell one law from another"
    return f"{few}; the serial fraction is {found}."


def _advice(measured: Measured, recommended: int) -> str:
    base = ranks_of(measured.baseline)
    if measured.super_linear:
        return f"Find out what slowed {base}, and measure it again before choosing."
    kept = _candidates(measured)
    lost = f"; {listed(list(measured.lost_accuracy))} ranks lose accuracy" if measured.lost_accuracy else ""
    if len(kept) == 1:
        more = ", or repeat more on an idle machine" if measured.unclear else ""
        return f"Stay with {base}{more}{lost}."
    if recommended == measured.baseline:
        return f"Stay with {base}: nothing gains 5 %{lost}."
    fastest = max(kept, key=lambda p: kept[p])
    near = "the fastest" if fastest == recommended else f"within 5 % of the fastest ({ranks_of(fastest)})"
    gain = f"{kept[recommended]:.2f} times as fast at an efficiency of {measured.efficiency[recommended]:.2f}"
    kind = " that keeps the accuracy" if lost else ""
    return f"Use {ranks_of(recommended)}: {gain}, {near}{kind}{lost}."


def _nothing_shown(measured: Measured) -> bool:
    return bool(measured.several) and not measured.faster


def _intervals(measured: Measured) -> str:
    """`2 ranks 0.74 to 1.66 times`, for every p whose interval holds 1."""
    found = {p: measured.speedup[p].interval for p in measured.unclear}
    return listed([f"{ranks_of(p)} {i[0]:.2f} to {i[1]:.2f} times as fast" for p, i in found.items() if i])


def _turns_back(measured: Measured) -> bool:
    """Is the largest p slower than the best one, beyond the interval (without one: by more than 5 %)?"""
    last = measured.ranks[-1]
    best = max(measured.ranks, key=lambda p: measured.speedup[p].value)
    value, interval = ratio(measured.times[last], measured.times[best])
    return interval[0] > 1 if interval else value > 1 + NEAR


def _grows(values: Mapping[int, float]) -> bool:
    first, *_, last = values.values()
    return last - first > max(0.02, 0.15 * abs(first))


def _course(values: Mapping[int, float]) -> str:
    """`stays near 0.70 (0.67 to 0.72)`, or grows or falls from one end to the other."""
    (p, first), *_, (q, last) = values.items()
    low, high = min(values.values()), max(values.values())
    if _grows(values):
        return f"grows from {first:z.2f} at {ranks_of(p)} to {last:z.2f} at {q}"
    if first - last > max(0.02, 0.15 * abs(first)):
        return f"falls from {first:z.2f} at {ranks_of(p)} to {last:z.2f} at {q}"
    return f"stays near {sum(values.values()) / len(values):z.2f} ({low:z.2f} to {high:z.2f})"
