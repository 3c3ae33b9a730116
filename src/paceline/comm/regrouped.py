"""A collective whose ranks can become fewer: when one has died, the others go on with one of their own.

    world of 5 ─▶ ring over 0 1 2 3 4        rank 2 is gone        ─▶ ring over 0 1 3 4, which are now 0 to 3

The survivors agree beforehand on who they are (a strategy's business). They meet in a new process group,
which asks nothing of the ranks that are gone, and under store keys of their own. Cost: one meeting; and one
Python call for every collective, so only strategies that can lose a rank are given it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from paceline.comm.collectives import Collective, Operation, Pending
from paceline.comm.warned import gone
from paceline.comm.world import World


class Regrouped(Collective):
    """A collective made by `make` for a world, and made again for what is left of it."""

    def __init__(self, make: Callable[[World], Collective], world: World) -> None:
        super().__init__(world)
        self._make = make
        self._world = world
        self._inner = make(world)
        self.uses = self._inner.uses
        self.asynchronous = self._inner.asynchronous  # type: ignore[misc]  # it is what it holds

    def regroup(self, ranks: Sequence[int]) -> None:
        """From here on these ranks of the first world alone, numbered in their order.

        What was there before is not closed: closing may wait for those that are gone."""
        self._inner = self._make(part_of(self._world, ranks))
        if self._inner.rank == 0:
            gone(self._world.store, self.size - self._inner.size)
        self.rank, self.size = self._inner.rank, self._inner.size

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        return self._inner.all_reduce_(flat, operation)

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        return self._inner.broadcast_(flat, src)

    def all_gather(self, flat: Tensor) -> Tensor:
        return self._inner.all_gather(flat)

    def reduce_scatter(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        return self._inner.reduce_scatter(flat, operation)

    def reduce_scatter_lent(self, flat: Tensor, out: Tensor, operation: Operation = "sum") -> Tensor:
        return self._inner.reduce_scatter_lent(flat, out, operation)

    def allocate(self, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self._inner.allocate(length, dtype, device)

    def start(self, flat: Tensor, operation: Operation = "sum") -> Pending:
        return self._inner.start(flat, operation)

    def barrier(self) -> None:
        self._inner.barrier()

    def close(self) -> None:
        self._inner.close()


def part_of(world: World, ranks: Sequence[int]) -> World:
    """The world of some ranks of one node; each of them calls this, the others need not be alive."""
    name = "-".join(map(str, ranks))
    group = dist.new_group(
        list(ranks),
        timeout=timedelta(seconds=world.deadline),
        use_local_synchronization=True,
    )
    return dataclasses.replace(
        world,
        rank=list(ranks).index(world.rank),
        size=len(ranks),
        local_rank=list(ranks).index(world.rank),
        local_size=len(ranks),
        store=PrefixStore(f"ranks {name}", world.store),
        group=group,
    )
