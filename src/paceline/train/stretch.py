"""A stretch of steps, collected in memory and written as one journal line."""

from __future__ import annotations

import math

from paceline.metrics.clock import Clock
from paceline.metrics.journal import Journal


class Stretch:
    """Loss, samples and collective of each step since the last line."""

    def __init__(self, epoch: int, first: int) -> None:
        self._epoch = epoch
        self._first = first
        self._loss: list[float] = []
        self._samples: list[int] = []
        self._spans: list[tuple[float, float]] = []

    def __len__(self) -> int:
        return len(self._loss)

    def add(self, loss: float, samples: int, span: tuple[float, float] | None) -> None:
        """One step; `span` is this rank's first arrival at and last return from a collective."""
        self._loss.append(loss)
        self._samples.append(samples)
        self._spans.append(span or (math.nan, math.nan))

    def write(self, journal: Journal, clock: Clock, *, empty: bool = False) -> Stretch:
        """Put the line on disk (for no steps only where asked to); returns the stretch that follows."""
        if self._loss or empty:
            at = next((arrived for arrived, _ in self._spans if not math.isnan(arrived)), 0.0)
            journal.write(
                "steps",
                epoch=self._epoch,
                first=self._first,
                loss=[float(f"{loss:.9g}") for loss in self._loss],
                samples=self._samples,
                at=at,
                arrive=[_microseconds(arrived - at) for arrived, _ in self._spans],
                leave=[_microseconds(left - at) for _, left in self._spans],
                seconds=clock.take(),
            )
        return Stretch(self._epoch, self._first + len(self._loss))


def _microseconds(seconds: float) -> int | None:
    return None if math.isnan(seconds) else round(seconds * 1e6)
