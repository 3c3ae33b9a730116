"""A slice of one physical copy: the parameters of an optimizer's group, once in the memory of the node.

values      [ w1 | b1 | w2 | b2 | padding ]     one copy, mapped by all ranks; every parameter is a view of it
            [ rank 0  |  rank 1 |  rank 2 ]     each updates its slice, and keeps the optimizer's state of it
gradients   [ w1 | b1 | w2 | b2 | padding ]     one flat buffer a rank, in the collective's own memory

Slices are multiples of 64 elements, so no two ranks write one cache line, and an element falls into the
vectorised part of the optimizer's loop for every number of ranks: the same bits whoever updates it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.comm.collectives import Collective
from paceline.comm.shm.memory import shared
from paceline.comm.world import World
from paceline.strategies._buckets import Bucket, laid_out_like

ALIGNED = 64
_CPU = torch.device("cpu")


class Slice:
    """This rank's part of the parameters of one optimizer group and one type."""

    def __init__(
        self,
        group: dict[str, Any],
        parameters: Sequence[nn.Parameter],
        world: World,
        collective: Collective,
        virtual: int,
    ) -> None:
        self._world = world
        self._collective = collective
        self.count = sum(p.numel() for p in parameters)
        whole = ALIGNED * world.size
        self.length = -(-self.count // whole) * whole
        dtype = parameters[0].dtype
        values = one_copy_of(parameters, world, collective, self.length)
        self._gradients = collective.allocate(self.length * virtual, dtype, _CPU).split(self.length)
        self._buckets = [
            Bucket(parameters, lambda *_, flat=flat: flat[: self.count]) for flat in self._gradients
        ]
        self.mine = slice(*(self.length // world.size * at for at in (world.rank, world.rank + 1)))
        self.parameter = nn.Parameter(values[self.mine])
        self._mean = torch.zeros(
            len(self.parameter), dtype=dtype
        )  # of this slice's gradients, over the ranks
        group["params"].append(self.parameter)

    def install(self, virtual: int) -> None:
        """Gradients go into this one of the flat buffers."""
        self._buckets[virtual].install()

    def restore(self) -> None:
        """Gradients that were dropped or replaced are views again (of the only buffer there is)."""
        self._buckets[0].restore()

    def reduce(self) -> None:
        """The slice's gradient is the mean over the ranks; the others may read this rank's until the next
        barrier."""
        self._collective.reduce_scatter_lent(self._gradients[0], self._mean, "avg")
        if self.parameter.grad is not self._mean:
            self.parameter.grad = self._mean

    def zero(self) -> None:
        """This rank's own gradients are zero again."""
        for flat in self._gradients:
            flat.zero_()

    def reduce_in_a_tree(self, seats: int) -> None:
        """The same over the seats, summed in an order that only their number decides."""
        rows = self._collective.all_gather(torch.cat(self._gradients)).view(-1, self.length)[:, self.mine]
        self.parameter.grad = tree_sum(_in_order(rows, seats, self._world.size)).div_(seats)


def one_copy_of(
    parameters: Sequence[nn.Parameter], world: World, collective: Collective, length: int | None = None
) -> Tensor:
    """Move rank 0's values into memory that all ranks map; every parameter becomes a view of it."""
    count = sum(p.numel() for p in parameters)
    dtype = parameters[0].dtype
    memory = shared(world, max(1, length or count) * dtype.itemsize)
    values = torch.frombuffer(memory, dtype=dtype, count=length or count)
    with torch.no_grad():
        for parameter, piece in zip(parameters, values.split(_sizes(parameters, len(values))), strict=False):
            view = laid_out_like(parameter, piece)
            if world.rank == 0:
                view.copy_(parameter)
            parameter.data = view
    collective.barrier()
    return values


def give_back_freed() -> None:
    """The private parameters are free now, but glibc keeps such memory (ResNet-18: 37 MB in every rank)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def tree_sum(parts: list[Tensor]) -> Tensor:
    """Neighbours first, then neighbours of those: ((0+1)+(2+3))+((4+5)+6)."""
    while len(parts) > 1:
        pairs = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0].clone()


def _in_order(rows: Tensor, seats: int, ranks: int) -> list[Tensor]:
    """One row a seat; ranks that have a seat less than others left their last row unused."""
    most = len(rows) // ranks
    per_rank = [seats // ranks + (rank < seats % ranks) for rank in range(ranks)]
    return [rows[rank * most + i] for rank, count in enumerate(per_rank) for i in range(count)]


def _sizes(parameters: Sequence[nn.Parameter], length: int) -> list[int]:
    sizes = [p.numel() for p in parameters]
    return [*sizes, length - sum(sizes)]
