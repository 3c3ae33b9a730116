"""The three laws of scaling, fitted to times.

    Amdahl       S(p) = 1 / (f + (1 - f) / p)      a serial fraction f of a fixed amount of work
    Gustafson    S(p) = p - f (p - 1)              a serial share f of a run whose work grows with p
    USL          S(p) = p / (1 + sigma (p - 1) + kappa p (p - 1))    queueing, and agreeing pairwise

Times are fitted, not speed-ups: log T(p) = log T1 - log S(p). T1 is a parameter, for the time of one rank
is measured no better than the others; dividing by it would carry its error into every point. Logarithms,
because times scatter by a factor. Every repeat is one observation. Bounded least squares; the 95 % intervals
are Student's t times the standard errors from the Jacobian, with (observations - parameters) degrees of
freedom, cut at the bounds. `rmse` is the root mean square of the residuals: a relative error of the times.

A fit is refused unless it could fail: a law with k parameters (T1 included) takes k + 1 different values
of p, one of them p = 1: three for Amdahl and Gustafson, four for USL. Nor is a law stretched beyond twice
the largest p measured. Cost: some tens of evaluations on a handful of points, 1 ms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from paceline.errors import ConfigError
from paceline.study.laws_intervals import Estimate, Interval, quantile

Floats = NDArray[np.float64]
STRETCH = 2  # times the largest measured p
EXACT = 1e-6  # relative error of the times below which nothing is left to explain


@dataclass(frozen=True)
class Law:
    """Speed-up as a function of p and parameters: name -> (start, upper bound); the lower bound is 0."""

    name: str
    title: str
    formula: str
    parameters: Mapping[str, tuple[float, float]]
    speedup: Callable[..., Floats]

    @property
    def points(self) -> int:
        """Different values of p that a fit takes: its parameters, T1, and one that can contradict them."""
        return len(self.parameters) + 2


def _amdahl(p: Floats, f: float) -> Floats:
    return 1 / (f + (1 - f) / p)


def _gustafson(p: Floats, f: float) -> Floats:
    return p - f * (p - 1)


def _usl(p: Floats, sigma: float, kappa: float) -> Floats:
    return p / (1 + sigma * (p - 1) + kappa * p * (p - 1))


LAWS = {
    law.name: law
    for law in (
        Law("amdahl", "Amdahl's law", "S(p) = 1 / (f + (1 - f) / p)", {"f": (0.1, 1.0)}, _amdahl),
        Law("gustafson", "Gustafson's law", "S(p) = p - f (p - 1)", {"f": (0.1, 1.0)}, _gustafson),
        Law(
            "usl",
            "the universal scalability law",
            "S(p) = p / (1 + sigma (p - 1) + kappa p (p - 1))",
            {"sigma": (0.1, 1.0), "kappa": (0.01, math.inf)},
            _usl,
        ),
    )
}


@dataclass(frozen=True, eq=False)
class Fit:
    """One law with the parameters that the times gave it."""

    law: Law
    parameters: dict[str, float]
    intervals: dict[str, Interval]
    at_bound: tuple[str, ...]
    baseline_seconds: float
    rmse: float
    observations: int
    covariance: Floats
    largest: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom: observations less parameters, T1 included."""
        return self.observations - len(self.parameters) - 1

    def speedup(self, ranks: float) -> float:
        """What the law says at p."""
        return float(self.law.speedup(np.float64(ranks), *self.parameters.values()))

    def predict(self, ranks: int) -> Estimate:
        """Speed-up at p and its 95 % interval; refused beyond twice the largest p measured."""
        if not 1 <= ranks <= STRETCH * self.largest:
            raise ConfigError(
                f"no prediction for {ranks} ranks: the most measured is {self.largest}, and a law is not "
                f"stretched beyond twice that; measure up to at least {math.ceil(ranks / STRETCH)} ranks"
            )
        value = self.speedup(ranks)
        slope = _slope(self.law, np.array([float(ranks)]), np.array(list(self.parameters.values())))[0]
        half = quantile(self.freedom) * math.sqrt(max(0.0, float(slope @ self.covariance @ slope)))
        factor = math.exp(min(half, 100.0))  # beyond any interval that could mean something
        return Estimate(value, (value / factor, max(value, min(value * factor, float(ranks)))))

    @property
    def knee(self) -> float | None:
        """p at the maximum of USL, where it lies within twice the data; the other laws have none."""
        if not self.parameters.get("kappa"):
            return None
        peak = max(1.0, math.sqrt((1 - self.parameters["sigma"]) / self.parameters["kappa"]))
        return peak if peak <= STRETCH * self.largest else None

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; `predicted` holds every whole p up to twice the largest measured."""
        return {
            "law": self.law.title,
            "formula": self.law.formula,
            "parameters": self.parameters,
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "at_bound": list(self.at_bound),
            "predicted": {str(p): self.speedup(p) for p in range(1, STRETCH * self.largest + 1)},
            "rmse": self.rmse,
            "baseline_seconds": self.baseline_seconds,
            "observations": self.observations,
            "degrees_of_freedom": self.freedom,
            "knee": self.knee,
        }


def fit(law: Law, times: Mapping[int, Sequence[float]]) -> Fit:
    """Least squares of the logarithms of the times; `times` must hold `law.points` values of p and p = 1."""
    ranks = np.array([p for p, repeats in times.items() for _ in repeats], float)
    logs = np.log([seconds for repeats in times.values() for seconds in repeats])
    middle = float(logs.mean())  # taken out, so that the unit of time changes no digit that matters

    def residuals(guess: Floats) -> Floats:
        return np.asarray(guess[0] - np.log(law.speedup(ranks, *guess[1:])) - (logs - middle))

    def jacobian(guess: Floats) -> Floats:
        return np.column_stack([np.ones_like(ranks), -_slope(law, ranks, guess[1:])])

    starts, uppers = zip(*law.parameters.values(), strict=True)
    first = float(logs[ranks == 1].mean()) - middle
    found = optimize.least_squares(
        residuals,
        [first, *starts],
        jacobian,
        bounds=([-np.inf, *(0.0 for _ in starts)], [np.inf, *uppers]),
        method="dogbox",  # stops on a bound exactly; "trf" only near it
        x_scale="jac",
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    return _fit(law, times, found.x, residuals(found.x), jacobian(found.x), middle)


def _fit(
    law: Law,
    times: Mapping[int, Sequence[float]],
    at: Floats,
    residuals: Floats,
    jacobian: Floats,
    middle: float,
) -> Fit:
    freedom = len(residuals) - len(at)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * float(residuals @ residuals) / freedom
    halves = quantile(freedom) * np.sqrt(np.diag(covariance))[1:]
    limits = [(0.0, upper) for _, upper in law.parameters.values()]
    values = [float(x) for x in at[1:]]
    return Fit(
        law=law,
        parameters=dict(zip(law.parameters, values, strict=True)),
        intervals={
            name: (max(low, x - half), min(high, x + half))
            for name, x, half, (low, high) in zip(
                law.parameters, values, halves.tolist(), limits, strict=True
            )
        },
        at_bound=tuple(
            name for name, x, limit in zip(law.parameters, values, limits, strict=True) if x in limit
        ),
        baseline_seconds=math.exp(float(at[0]) + middle),
        rmse=math.sqrt(float(np.mean(residuals**2))),
        observations=len(residuals),
        covariance=covariance[1:, 1:],
        largest=max(times),
    )


def markedly_better(full: Fit, simple: Fit) -> bool:
    """F-test at 5 %: does the extra parameter explain more than one would by chance?

    Amdahl is USL with kappa = 0, so there the test is the textbook one; Gustafson is not a case of USL, and
    the same comparison of the residuals serves as a rule of thumb.
    """
    if simple.rmse < EXACT or full.freedom < 1:
        return False
    left, right = (one.observations * one.rmse**2 for one in (full, simple))
    extra = simple.freedom - full.freedom
    f_value = (right - left) / extra / max(left / full.freedom, np.finfo(float).tiny)
    return bool(stats.f.sf(f_value, extra, full.freedom) < 0.05)


def _slope(law: Law, ranks: Floats, at: Floats) -> Floats:
    """Derivatives of log S by the parameters, a row a p; a complex step has no rounding error."""
    step = 1e-20
    columns = []
    for index in range(len(at)):
        moved = at.astype(complex)
        moved[index] += 1j * step
        columns.append(np.log(law.speedup(ranks, *moved)).imag / step)
    return np.column_stack(columns)
