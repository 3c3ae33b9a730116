"""What one rank does in `paceline bench step`: every strategy with a model of its own, in turns.

    for every round, in an order shuffled anew:
      for every side:   new inputs ─► all ranks are there ─► forward ─► backward ─► step()
      one of the sides is no strategy: the same forward and backward and nothing else

Ranks read one clock, so a side takes from the moment the last rank began to the moment the last one was
done, and what it takes *outside* forward and backward is that minus the same of the side that is no
strategy, in the same round: the slower rank's computation is in both, and drops out.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paceline.bench._board import Board
from paceline.bench._step_cases import Case, shape_of
from paceline.bench._step_rows import COMPUTE
from paceline.comm.collectives import Collective
from paceline.comm.measured import Measured
from paceline.comm.world import World, joined
from paceline.launch.environment import Place
from paceline.metrics.clock import Meter
from paceline.registry import COLLECTIVES, MODELS, STRATEGIES
from paceline.strategies import Strategy

LEAST_ROUNDS = 7  # six values are the fewest that give a 95 % interval
_MOST_ROUNDS = 2001
_WARM = 3
CLASSES = 10
_RATE = 1e-4  # labels are random, so nothing is to be learnt, and nothing should grow

Times = tuple[float, float, float, float]  # start, forward done, backward done, end


@dataclass(frozen=True)
class Job:
    """What the ranks of one world measure."""

    model: str
    cases: Sequence[Case]
    batch: int
    seconds: float
    deadline: float


def run_rank(job: Job, board: Board, folder: Path, place: Place) -> None:
    """Measure all sides; leaves `<rank>.json` in the folder."""
    torch.set_num_threads(1)
    board.sit(place.rank)
    with joined(place, job.deadline) as world:
        collectives: dict[str, Collective] = {}
        sides: dict[str, _Plain] = {COMPUTE: _Plain(job)}
        for case in job.cases:
            if case.collective not in collectives:
                collectives[case.collective] = COLLECTIVES.make(case.collective, world)
            sides[case.label] = _Side(job, case, world, collectives[case.collective])
        samples = _measured(job, sides, board)
        sent = {label: side.sent for label, side in sides.items()}
        board.wait()
        for side in sides.values():
            side.close()
        for collective in collectives.values():
            collective.close()
    (folder / f"{place.rank}.json").write_text(json.dumps({"samples": samples, "sent": sent}))


def make_model(name: str) -> nn.Module:
    """The same weights on every rank."""
    torch.manual_seed(0)
    made: nn.Module = MODELS.load(name)(shape_of(name), CLASSES)
    return made


def make_optimizer(model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
    """SGD with momentum: one number of state a parameter."""
    kind = {"fused": True} if fused else {}
    return torch.optim.SGD(model.parameters(), _RATE, momentum=0.9, **kind)


class _Plain:
    """Forward and backward alone: what every strategy has to do, too."""

    sent: tuple[int, int] | None = None  # collectives and bytes of a step, where they can be counted

    def __init__(self, job: Job) -> None:
        self._model = self._module = make_model(job.model)

    def step(self, images: Tensor, labels: Tensor) -> Times:
        start = time.perf_counter()
        loss = cross_entropy(self._module(images), labels)
        forward = time.perf_counter()
        self._backward(loss)
        backward = time.perf_counter()
        self._update()
        end = time.perf_counter()
        self._after()
        return start, forward, backward, end

    def _backward(self, loss: Tensor) -> None:
        loss.backward()

    def _update(self) -> None: ...

    def _after(self) -> None:
        """Not timed: gradients are dropped, as after every step of the reference."""
        self._model.zero_grad(set_to_none=True)

    def close(self) -> None: ...


class _Side(_Plain):
    """A strategy at work."""

    def __init__(self, job: Job, case: Case, world: World, collective: Collective) -> None:
        super().__init__(job)
        self._meter = Meter()
        self._strategy: Strategy = STRATEGIES.make(
            case.strategy, world, Measured(collective, self._meter), self._meter, options=case.options
        )
        optimizer = make_optimizer(self._model, fused=case.fused)
        self._module = self._strategy.attach(self._model, optimizer)
        self._inside = self._strategy.collectives is not None  # messages are torch's, and not counted
        self._before = (self._meter.calls, self._meter.bytes)

    def _backward(self, loss: Tensor) -> None:
        self._strategy.backward(loss)

    def _update(self) -> None:
        self._strategy.step()

    def _after(self) -> None:
        now = (self._meter.calls, self._meter.bytes)
        self.sent = None if self._inside else (now[0] - self._before[0], now[1] - self._before[1])
        self._before = now

    def close(self) -> None:
        self._strategy.close()


def _measured(job: Job, sides: dict[str, _Plain], board: Board) -> dict[str, list[Times]]:
    generator = torch.Generator().manual_seed(torch.initial_seed() + 1)
    images = torch.empty(job.batch, *shape_of(job.model))
    labels = torch.arange(job.batch) % CLASSES
    samples: dict[str, list[Times]] = {label: [] for label in sides}

    def round_(number: int) -> None:
        order = list(sides)
        random.Random(number).shuffle(order)
        for label in order:
            images.normal_(generator=generator)
            board.wait()
            samples[label].append(sides[label].step(images, labels))

    for number in range(_WARM):
        began = time.perf_counter()
        round_(-1 - number)
    trial = board.share(time.perf_counter() - began)[0]  # rank 0's, on every rank
    for found in samples.values():
        found.clear()
    rounds = min(_MOST_ROUNDS, max(LEAST_ROUNDS, int(job.seconds / trial)))
    for number in range(rounds):
        round_(number)
        board.tell((number + 1) / rounds)
    return samples
