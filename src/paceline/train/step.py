"""One step: this rank's samples, in micro-batches, through forward, backward and the strategy.

The loss of a micro-batch is the sum over its samples, weighted by seats/count, where count is the number of
samples of the whole step over all ranks. The mean of the gradients over the seats is then exactly the
gradient of the mean loss, whatever each rank got: a short last step, an uneven deal, or nothing at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paceline.data.shard import seat_slice
from paceline.metrics.clock import Clock, Meter
from paceline.strategies import Strategy
from paceline.train.brake import Brake
from paceline.train.precision import full


class Step:
    """Called once per step by the loop; sums what the loop reports."""

    def __init__(
        self,
        module: nn.Module,
        strategy: Strategy,
        clock: Clock,
        meter: Meter,
        *,
        micro_batches: int = 1,
        label_smoothing: float = 0.0,
        precision: Callable[[], AbstractContextManager[object]] = full,
        brake: Brake | None = None,
    ) -> None:
        self._module = module
        self._strategy = strategy
        self._clock = clock
        self._meter = meter
        self._micro_batches = micro_batches
        self._label_smoothing = label_smoothing
        self._precision = precision
        self._brake = brake or Brake()
        self.correct = 0

    def __call__(self, images: Tensor, labels: Tensor, count: int) -> float:
        """Make one update; returns the sum of this rank's losses."""
        seats = self._strategy.seats
        cuts = [seat_slice(count, *seat) for seat in seats]
        lengths = [cut.stop - cut.start for cut in cuts]
        total = 0.0
        for number, (some, truth) in enumerate(
            zip(images.split(lengths), labels.split(lengths), strict=True)
        ):
            with self._strategy.seated(number):
                total += self._seat(some, truth, seats[0][1] / count, last=number == len(seats) - 1)
        self._strategy.step()
        self._clock.lap("update")
        self._clock.move("update", "communicate", self._meter.take_seconds())
        return total

    def _seat(self, images: Tensor, labels: Tensor, weight: float, *, last: bool) -> float:
        """One seat's samples in micro-batches; only the very last backward pass completes the gradients."""
        total = 0.0
        count = self._micro_batches  # equally many on all ranks, empty ones too: layers may communicate
        pieces = list(zip(images.tensor_split(count), labels.tensor_split(count), strict=True))
        for number, (some, truth) in enumerate(pieces, start=1):
            complete = last and number == len(pieces)
            with contextlib.nullcontext() if complete else self._strategy.accumulating():
                total += self._micro_batch(some, truth, weight)
        return total

    def _micro_batch(self, images: Tensor, labels: Tensor, weight: float) -> float:
        self._brake.forward()
        with self._precision():
            outputs = self._module(images)
            loss = cross_entropy(outputs, labels, reduction="sum", label_smoothing=self._label_smoothing)
        self._brake.pause()
        self._clock.lap("forward")
        self._clock.move("forward", "communicate", self._meter.take_seconds())
        self._strategy.backward(loss * weight)
        self._clock.lap("backward")
        communicated = self._meter.take_seconds()
        self._clock.move("backward", "communicate", communicated)
        self._brake.backward(communicated)
        with torch.no_grad():
            self.correct += int((outputs.argmax(1) == labels).sum())
        return loss.item()
