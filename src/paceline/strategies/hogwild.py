"""hogwild: one model in shared memory; every rank updates it when it likes, without locks.

    rank 0   forward ─ backward ─▶ update ─ forward ─ backward ─▶ update ─ …
                                     ▼                              ▼
             [ w1 | b1 | w2 | b2 ]   one physical copy, read and written by all at any time
                               ▲                          ▲
    rank 1   forward ─ backward ─▶ update ─ forward ─ backward ─▶ update ─ …

A gradient is computed from parameters that others change meanwhile; two updates at the same moment may lose
elements of one of them. Both are harmless while gradients are small or sparse (Niu et al. 2011), and both are
counted: staleness is the number of updates by others between a rank's reading and its writing, and an update
overlaps when another was under way. Counting needs no atomics: each rank writes its own counters alone.

Cost of a step: no message. One vector operation on the flat copy, which the other cores' caches then refetch.

momentum    "scaled": lowered with the number of ranks by the rule of _momentum.py; "given": as it is. Every
            rank's velocity is its own.
lock        one update at a time (a file lock, 2 µs): what locks cost, and what their absence does
bound       a rank waits when it is more than that many updates ahead of the slowest
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any, ClassVar

import torch
from torch import nn

from paceline.comm.collectives import Collective
from paceline.comm.shm.memory import shared
from paceline.comm.world import World
from paceline.errors import ConfigError, one_of
from paceline.metrics.clock import Meter
from paceline.strategies._base import Strategy
from paceline.strategies._buckets import by_type
from paceline.strategies._flat import check_element_wise, flattened
from paceline.strategies._momentum import MOMENTA, scale_momentum_
from paceline.strategies._periods import counted, counts
from paceline.strategies._slices import one_copy_of
from paceline.strategies._turns import Turns, file_lock


class Hogwild(Strategy):
    """Asynchronous updates of one shared copy by the ranks of one node.

    `momentum`: scaled with the number of ranks, or given; `lock`: one update at a time; `bound`: how many
    updates a rank may be ahead of the slowest (0: any); `element_wise`: trust an optimizer of your own."""

    lockstep: ClassVar[bool] = False
    in_rounds: ClassVar[bool] = False
    single_node: ClassVar[bool] = True

    def __init__(
        self,
        world: World,
        collective: Collective,
        meter: Meter,
        *,
        momentum: str = "scaled",
        lock: bool = False,
        bound: int = 0,
        element_wise: bool = False,
    ) -> None:
        super().__init__(world, collective, meter)
        one_of("hogwild: momentum", momentum, MOMENTA)
        if bound < 0:
            raise ConfigError(f"hogwild: bound = {bound} must be at least 0 (0: no bound)")
        self._momentum = momentum
        self._bound = bound
        self._trusted = element_wise
        self._lock = file_lock(world, "hogwild") if lock else None
        self._staleness: Counter[int] = Counter()
        self._overlapping = 0

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        check_element_wise("hogwild", model, optimizer, trusted=self._trusted)
        module = super().attach(model, optimizer)
        self._groups = flattened(optimizer, lambda some: one_copy_of(some, self.world, self.collective))
        taken = {id(p) for group in self._groups for p in group.bucket.parameters}
        for some in by_type(p for p in model.parameters() if id(p) not in taken):
            one_copy_of(some, self.world, self.collective)
        if self._momentum == "scaled":
            scale_momentum_(optimizer, self.world.size)
        self._turns = Turns(self.world, shared(self.world, Turns.nbytes(self.world.size)))
        self._read = self._turns.others()
        return module

    def step(self) -> None:
        for group in self._groups:
            group.ready()
        self.clip()
        with self._lock or contextlib.nullcontext(), self._turns.updating() as turn:
            self._staleness[turn.others - self._read] += 1
            self.optimizer.step()
        self._overlapping += turn.overlapped
        for group in self._groups:
            group.bucket.flat.zero_()
        if self._bound:
            self._turns.wait_for_slowest(self._bound, self.meter)
        self._read = self._turns.others()

    def synchronize(self) -> None:
        """When all have come here nobody writes any more: what there is, is the model."""
        self._turns.rest()
        self.collective.barrier()
        super().synchronize()
        self._turns.resume()

    def account(self) -> dict[str, Any]:
        return {
            "staleness": counts(self._staleness),
            "overlapping_updates": self._overlapping,
            "updates": self._turns.all(),
        }

    def state_dict(self) -> dict[str, Any]:
        """Counts; parameters are the model's, velocities the optimizer's."""
        return {"staleness": counts(self._staleness), "overlapping": self._overlapping}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._staleness = counted(state["staleness"])
        self._overlapping = int(state["overlapping"])

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
