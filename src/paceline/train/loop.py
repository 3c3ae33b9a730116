"""The loop: epochs of steps, and at the end of each the only moment at which replicas are compared.

for epoch:
    for step:     data ─▶ forward ─▶ backward ─▶ strategy.step()
    strategy.synchronize()
    evaluate training and test set, exactly, over all ranks
    journal, events, progress
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from paceline.comm.collectives import Collective
from paceline.config import Plan, RunConfig
from paceline.data.feed import Feed
from paceline.data.resident import Resident
from paceline.metrics.clock import Clock, Meter
from paceline.metrics.journal import Journal
from paceline.strategies import Strategy
from paceline.train.evaluate import Metrics, evaluate, exact
from paceline.train.optimize import factor, set_learning_rate
from paceline.train.progress import Progress
from paceline.train.step import Step
from paceline.train.stretch import Stretch

_STRETCH = 200  # steps a journal line holds at most: what a killed rank can lose


@dataclass
class Loop:
    """Everything one rank trains with; calling it trains."""

    config: RunConfig
    plan: Plan
    model: nn.Module
    optimizer: torch.optim.Optimizer
    strategy: Strategy
    collective: Collective
    data: Resident
    feed: Feed
    step: Step
    clock: Clock
    meter: Meter
    journal: Journal
    progress: Progress
    device: torch.device
    done: int = 0
    """Steps made so far."""
    lost: set[int] = field(default_factory=set)
    """Ranks that have died."""

    def __call__(self, serve: Callable[[], None] | None = None) -> None:
        """Train until the planned steps are made or the target is reached.

        `serve` is what a rank that does not train does while the others train an epoch."""
        self.progress.begin(self.plan)
        for epoch in range(self.plan.epochs):
            self.model.train()
            started = time.monotonic()
            first = self.done
            sums = self._train(epoch) if serve is None else self._serve(epoch, serve)
            self.done = first + self._steps_from(first)
            metrics = self._evaluate(epoch, sums, time.monotonic() - started)
            if self.config.target is not None and metrics.accuracy >= self.config.target:
                break
        self.progress.end()

    def _train(self, epoch: int) -> torch.Tensor:
        """One pass over the data; returns this rank's [loss, correct, count]."""
        sums = torch.zeros(3, dtype=torch.float64)
        stretch = Stretch(epoch, self.done)
        self.step.correct = 0
        self.clock.resume()
        first = self.done
        for number, seats in self.strategy.turns(self._steps_from(first)):
            self.done = first + number
            self._set_learning_rate()
            images, labels, count = self.feed.step(epoch, number, self.plan.global_batch, seats)
            images, labels = images.to(self.device), labels.to(self.device)
            self.clock.lap("data")
            loss = self.step(images, labels, count)
            self.done += 1
            stretch.add(loss, len(labels), self.meter.take_span())
            sums += torch.tensor([loss, 0, len(labels)])
            self.progress.step(self.done, count, loss / max(1, len(labels)))
            self.clock.lap("other")
            if len(stretch) == _STRETCH:
                stretch = stretch.write(self.journal, self.clock)
        stretch.write(self.journal, self.clock)
        sums[1] = self.step.correct
        return sums

    def _serve(self, epoch: int, serve: Callable[[], None]) -> torch.Tensor:
        """While others train; the whole of it counts as `other`."""
        self.clock.resume()
        serve()
        self.clock.lap("other")
        Stretch(epoch, self.done).write(self.journal, self.clock, empty=True)
        return torch.zeros(3, dtype=torch.float64)

    def _steps_from(self, first: int) -> int:
        """Steps of the epoch that begins after `first` steps."""
        return min(self.plan.steps_per_epoch, self.plan.steps - first)

    def _evaluate(self, epoch: int, sums: torch.Tensor, train_seconds: float) -> Metrics:
        """Replicas agree, then exact metrics; none of it counts as training time."""
        started = time.monotonic()
        self.progress.say("evaluating")
        self.strategy.synchronize()
        self._note_losses(epoch)
        during = exact(self.collective, sums)
        if self.config.train_accuracy == "eval":
            train = evaluate(self.model, self.data.train, self.collective, self.device)
        else:
            train = during
        test = evaluate(self.model, self.data.test, self.collective, self.device)
        self.meter.take_span()  # what synchronizing sent belongs to no step
        self.meter.take_seconds()
        self.journal.write(
            "epoch",
            epoch=epoch,
            step=self.done,
            train_accuracy=train.accuracy,
            test_accuracy=test.accuracy,
            test_loss=test.loss,
            evaluate_seconds=time.monotonic() - started,
        )
        scores = {
            "loss/train": during.loss,
            "accuracy/train": train.accuracy,
            "accuracy/test": test.accuracy,
            "samples_per_second": during.count / train_seconds,
        }
        self.progress.epoch(epoch, self.done, scores)
        return test

    def _note_losses(self, epoch: int) -> None:
        """Rank 0 writes down who has died since it last looked."""
        for rank in sorted(set(self.strategy.lost) - self.lost):
            self.lost.add(rank)
            self.journal.write("lost", rank=rank, epoch=epoch)
            self.progress.note(f"rank {rank} died in epoch {epoch + 1}; the others go on without it")

    def _set_learning_rate(self) -> None:
        share = factor(self.config.schedule, self.done, self.plan.steps, self.plan.warmup_steps)
        set_learning_rate(self.optimizer, self.plan.learning_rate * share)
