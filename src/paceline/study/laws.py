"""What another rank buys: speed-up, efficiency, the laws that may explain it, a verdict and warnings.

    times ──▶ Measured ──▶ speed-up, efficiency, serial fraction ──┐
                 │  └────▶ fits of Amdahl, Gustafson, USL ─────────┼─▶ Analysis ──▶ as_json()
                 └───────▶ warnings, verdict, recommended ranks ───┘

Numbers in, numbers and sentences out; nothing is read or written. Cost: milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.errors import ConfigError
from paceline.study.laws_fit import LAWS, Fit, Law, fit
from paceline.study.laws_intervals import Estimate, ratio
from paceline.study.laws_measured import Measured, Numbers, by_ranks, medians
from paceline.study.laws_warnings import listed, warnings
from paceline.study.verdict import choose, recommend, verdict


@dataclass(frozen=True)
class Analysis:
    """All that a group of times says. `law` names the fit that applies, None where none does."""

    scaling: str | None
    baseline: int
    repeats: dict[int, int]
    speedup: dict[int, float]
    speedup_interval: dict[int, tuple[float, float]]
    efficiency: dict[int, float]
    serial_fraction: dict[int, float]
    fits: dict[str, Fit]
    law: str | None
    recommended: int
    verdict: str
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]

    @property
    def knee(self) -> float | None:
        """p at the maximum of the universal scalability law, where it was fitted and has one within reach."""
        return self.fits["usl"].knee if "usl" in self.fits else None

    def predict(self, ranks: int) -> Estimate:
        """Speed-up at p by the law that applies, with its interval; refused where that would be a guess."""
        if self.law is None:
            raise ConfigError(f"no prediction for {ranks} ranks: no law applies to these times; measure it")
        return self.fits[self.law].predict(ranks)

    def as_json(self) -> dict[str, Any]:
        """Plain values with text keys, as `laws.json` and `paceline laws --json` hold them."""
        return {
            "scaling": self.scaling,
            "baseline": self.baseline,
            "repeats": _text_keys(self.repeats),
            "speedup": _text_keys(self.speedup),
            "speedup_interval": {str(p): list(interval) for p, interval in self.speedup_interval.items()},
            "efficiency": _text_keys(self.efficiency),
            "serial_fraction": _text_keys(self.serial_fraction),
            "fits": {name: one.as_json() for name, one in self.fits.items()},
            "law": self.law,
            "knee": self.knee,
            "recommended": self.recommended,
            "verdict": self.verdict,
            "warnings": list(self.warnings),
            "refusals": list(self.refusals),
        }


def analyse(
    times: Numbers,
    *,
    scaling: str | None = None,
    cores: int | None = None,
    accuracy: Numbers | None = None,
    updates: Numbers | None = None,
    batches: Numbers | None = None,
    threads: Numbers | None = None,
) -> Analysis:
    """Analyse the seconds measured at each number of ranks.

    times      seconds for the same training samples; a number, or one number a repeat
    scaling    "strong" (global batch fixed), "weak" (batch of a rank fixed), None: as the batches say
    cores      usable cores of all nodes            accuracy   test accuracy, fractions or per cent
    updates    optimizer updates in the run         batches    samples a rank and update
    threads    compute threads in each rank
    """
    return _conclude(
        Measured(
            times=by_ranks("time", times),
            declared=scaling,
            cores=cores,
            accuracy=by_ranks("accuracy", accuracy, zero=True),
            updates=medians("updates", updates),
            batches=medians("batch", batches),
            threads=medians("threads", threads),
        )
    )


def _conclude(measured: Measured) -> Analysis:
    reasons = {name: _refusal(law, measured) for name, law in LAWS.items()}
    fits = {name: fit(law, measured.times) for name, law in LAWS.items() if not reasons[name]}
    law, recommended = choose(measured, fits), recommend(measured)
    return Analysis(
        scaling=measured.scaling,
        baseline=measured.baseline,
        repeats={p: len(values) for p, values in measured.times.items()},
        speedup={p: s.value for p, s in measured.speedup.items()},
        speedup_interval={p: s.interval for p, s in measured.speedup.items() if s.interval},
        efficiency=measured.efficiency,
        serial_fraction=measured.serial_fraction,
        fits=fits,
        law=law,
        recommended=recommended,
        verdict=verdict(measured, fits, law, recommended),
        warnings=tuple(warnings(measured)),
        refusals=tuple(reason for reason in reasons.values() if reason),
    )


@dataclass(frozen=True)
class Change:
    """What something costs or saves: the same run without it and with it."""

    without: float
    with_: float
    ratio: Estimate

    @property
    def relative(self) -> float:
        """0.0125 for one that takes 1.25 % longer."""
        return self.ratio.value - 1

    def as_json(self) -> dict[str, Any]:
        around = self.ratio.interval
        return {
            "without": self.without,
            "with": self.with_,
            "ratio": self.ratio.value,
            "relative": self.relative,
            "percent": 100 * self.relative,
            "percent_interval": around and [100 * (edge - 1) for edge in around],
        }


def change(without: Sequence[float] | float, with_: Sequence[float] | float) -> Change:
    """Relative change of a time by something, such as checkpoints, from runs without and with it."""
    sides = by_ranks("time", {1: without}), by_ranks("time", {1: with_})
    before, after = (side[1] for side in sides)
    return Change(medians("time", {1: before})[1], medians("time", {1: after})[1], ratio(after, before))


def _refusal(law: Law, measured: Measured) -> str | None:
    """Why this law is not fitted to these times, or None."""
    if measured.baseline != 1:
        return f"{law.name}: not fitted, since 1 rank was not measured"
    if len(measured.ranks) < law.points:
        have = f"{len(measured.ranks)} ({listed(measured.ranks)})"
        return (
            f"{law.name}: not fitted to {have}: it takes {law.points} values of p for a fit that could fail"
        )
    return None


def _text_keys(numbers: Mapping[int, Any]) -> dict[str, Any]:
    return {str(p): number for p, number in numbers.items()}
