"""one_copy: one physical copy of the parameters per node, and each rank updates a slice of it.

    every rank   forward ─ backward ─▶ its flat gradients         (reading the same parameters)
    ── all are there ──
    rank r       mean of slice r of all gradients ─▶ optimizer on slice r ─▶ slice r of the one copy
    ── all are there ──

Cost of a step: one reduce-scatter a parameter group and a barrier; nothing is gathered, because everybody
reads the same memory. Parameters and the optimizer's state exist once per node, whatever the number of
ranks, and replicas cannot drift apart. The optimizer is the user's own torch optimizer, element by element:
it is given one long parameter a group, this rank's slice, and never knows.

deterministic   The step's samples are dealt to `shards` seats whatever the number of ranks is; a rank sits
                on several in turn. Random numbers depend on the step and the seat alone, gradients are kept
                apart and summed in a fixed tree: the same bits for 1, 2, 3, … ranks (of equally many
                threads). Costs a gradient buffer a seat and an all-gather: for finding out, not for speed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.data.shard import seat_slice
from paceline.errors import ConfigError
from paceline.metrics.clock import Meter
from paceline.strategies._base import Strategy
from paceline.strategies._buckets import by_type
from paceline.strategies._flat import check_element_wise
from paceline.strategies._quick import quick_step
from paceline.strategies._slices import Slice, give_back_freed, one_copy_of


class OneCopy(Strategy):
    """Synchronous data parallelism of one node's ranks over one shared copy.

    `element_wise`: the optimizer is one of your own and treats every element alone. `deterministic`: the same
    bits for every number of ranks up to `shards`."""

    single_node: ClassVar[bool] = True

    def __init__(
        self,
        world: World,
        collective: Collective,
        meter: Meter,
        *,
        element_wise: bool = False,
        deterministic: bool = False,
        shards: int = 8,
    ) -> None:
        super().__init__(world, collective, meter)
        if deterministic and world.size > shards:
            raise ConfigError(
                f"one_copy: {world.size} ranks share {shards} shards; set shards to a larger number"
            )
        self._trusted = element_wise
        self._shards = shards if deterministic else 0
        self._done = 0

    @property
    def seat(self) -> tuple[int, int]:
        return self.seats[0]

    @property
    def seats(self) -> list[tuple[int, int]]:
        if not self._shards:
            return [(self.world.rank, self.world.size)]
        mine = seat_slice(self._shards, self.world.rank, self.world.size)
        return [(number, self._shards) for number in range(mine.start, mine.stop)]

    @contextlib.contextmanager
    def seated(self, number: int) -> Iterator[None]:
        if not self._shards:
            yield
            return
        for part in self._slices:
            part.install(number)
        before = torch.get_rng_state()
        words = np.random.SeedSequence((self._seed, self._done, self.seats[number][0])).generate_state(
            2, np.uint32
        )
        torch.manual_seed(int(words[0]) << 32 | int(words[1]))
        try:
            yield
        finally:
            torch.set_rng_state(before)

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        self._check(model, optimizer)
        module = super().attach(model, optimizer)
        self._seed = self._rank_0_seed()
        virtual = -(-self._shards // self.world.size) if self._shards else 1
        self._slices: list[Slice] = []
        taken: set[int] = set()
        for group in optimizer.param_groups:
            parameters, group["params"] = group["params"], []
            for some in by_type([p for p in parameters if p.requires_grad]):
                self._slices.append(Slice(group, some, self.world, self.collective, virtual))
                taken.update(id(p) for p in some)
        self._update = quick_step(optimizer)
        self._others = [p for p in model.parameters() if id(p) not in taken]
        for some in by_type(self._others):
            one_copy_of(some, self.world, self.collective)
        give_back_freed()
        return module

    def step(self) -> None:
        for part in self._slices:
            if self._shards:
                part.reduce_in_a_tree(self._shards)
            else:
                part.restore()
                part.reduce()
        self.clip()
        self._update()
        self.collective.barrier()
        for part in self._slices:
            part.zero()
        self._done += 1

    def clip(self) -> None:
        """The norm over all slices of all ranks: one more collective, of one number."""
        if self.clip_norm is None:
            return
        gradients = [part.parameter.grad for part in self._slices if part.parameter.grad is not None]
        squares = torch.zeros(1, dtype=torch.float64)
        for gradient in gradients:
            squares += gradient.double().square().sum()
        length = self.collective.all_reduce_(squares).sqrt().item()
        if not length <= self.clip_norm:  # also when it is not a number: that must not be hidden
            for gradient in gradients:
                gradient.mul_(self.clip_norm / (length + 1e-6))

    def _rank_0_seed(self) -> int:
        seed = torch.tensor([torch.initial_seed() & (2**62 - 1)])
        return int(self.collective.broadcast_(seed))

    def _check(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        check_element_wise("one_copy", model, optimizer, trusted=self._trusted)
        if self._shards and any(isinstance(m, nn.modules.batchnorm._NormBase) for m in model.modules()):
            raise ConfigError(
                "one_copy: batch statistics depend on how the batch is dealt, so deterministic = true cannot "
                "hold with batch norm in the model; take another norm, or deterministic = false"
            )
