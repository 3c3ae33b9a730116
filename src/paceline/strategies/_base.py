"""Strategy: decides when replicas exchange what. The loop knows nothing else of how ranks cooperate.

    attach(model, optimizer)     align the replicas, install hooks, return the module to call
    ┌ accumulating(): backward   these stay local
    │ backward(loss)             the last one of a step completes the gradients
    └ step()                     one update, then gradients are zero again
    synchronize()                every rank holds the same parameters and buffers

The loss of a rank is weighted so that the *mean* of the gradients over the seats is the gradient of the
whole step, also when the last step is short or dealt unevenly. Strategies therefore average.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.metrics.clock import Meter
from paceline.strategies._buckets import broadcast_together

Seats = Sequence[tuple[int, int]]


class Loop(Protocol):
    """The training loop."""

    def __call__(self, serve: Callable[[], None] | None = None) -> None:
        """Train epoch after epoch; `serve` is what a rank that does not train does in each."""


class Strategy(ABC):
    """Constructed on every rank; its own options are keyword-only parameters of its constructor."""

    lockstep: ClassVar[bool] = True
    """Do all ranks step together?"""
    in_rounds: ClassVar[bool] = True
    """Do all ranks communicate after the same steps? Then the journals say who waited for whom."""
    single_node: ClassVar[bool] = False
    """Does it need all ranks on one machine?"""
    least_ranks: ClassVar[int] = 1
    most_ranks: ClassVar[int | None] = None
    """How many ranks it needs, and how many it can have at most."""
    collectives: ClassVar[tuple[str, ...] | None] = None
    """The collectives it can use (None: any)."""
    clip_norm: float | None = None
    """An update's gradient is shortened to this length (2-norm over all parameters), after averaging."""

    def __init__(self, world: World, collective: Collective, meter: Meter) -> None:
        self.world = world
        self.collective = collective
        self.meter = meter

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        """Give every rank rank 0's parameters and buffers; returns the module to call in training."""
        self.model = model
        self.optimizer = optimizer
        broadcast_together(self.collective, [*model.parameters(), *model.buffers()])
        return model

    @property
    def seat(self) -> tuple[int, int]:
        """(index, count): which slice of the data this rank trains on."""
        return self.world.rank, self.world.size

    @property
    def seats(self) -> list[tuple[int, int]]:
        """All seats of this rank: one, unless a strategy deals finer than by ranks; they are neighbours."""
        return [self.seat]

    @contextlib.contextmanager
    def seated(self, number: int) -> Iterator[None]:
        """What is computed in here is for the seat `seats[number]`."""
        yield

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        """Backward passes in here add to the gradients and communicate nothing."""
        yield

    def backward(self, loss: Tensor) -> None:
        """The backward pass; a strategy that communicates inside it tells the meter here."""
        loss.backward()

    @abstractmethod
    def step(self) -> None:
        """The gradients of this rank are complete: make one update and leave them zero."""

    def clip(self) -> None:
        """Shorten the complete gradients to `clip_norm`, where one is set."""
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)

    @classmethod
    def trainers(cls, ranks: int, options: Mapping[str, Any]) -> int:
        """How many of the ranks train: all, unless some serve the others."""
        return ranks

    @classmethod
    def losable(cls, ranks: int, options: Mapping[str, Any]) -> frozenset[int]:
        """Ranks whose death is survived: the launcher must know, and the collective be able to regroup."""
        return frozenset()

    @property
    def lost(self) -> list[int]:
        """Ranks that have died and are no longer waited for, as of the last `synchronize`."""
        return []

    def turns(self, steps: int) -> Iterator[tuple[int, Seats]]:
        """Which steps of an epoch of so many this rank makes, and on which seats."""
        for number in range(steps):
            yield number, self.seats

    def run(self, loop: Loop) -> None:
        """Run the training loop; a rank that serves others gives it what it does instead of an epoch."""
        loop()

    def synchronize(self) -> None:
        """Afterwards every rank holds the same parameters and buffers (here: rank 0's buffers)."""
        broadcast_together(self.collective, list(self.model.buffers()))

    def account(self) -> dict[str, Any]:
        """What only this strategy can count, for the journal: rounds, staleness, … in plain values."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs beyond model and optimizer."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The counterpart of state_dict."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, but was given {sorted(state)}")

    def close(self) -> None:  # noqa: B027 - most strategies own nothing that needs closing
        """Give back what the strategy owns. Closing twice is harmless."""
