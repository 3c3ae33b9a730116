"""Collective: combines one tensor over all ranks. One method is required; the rest follows from it.

    all_reduce_   in place, any length including 0, the same bits on every rank afterwards
    broadcast_    = sum of bytes in which every rank but one gives zeros
    all_gather    = sum of bytes in which every rank fills its own row
    reduce_scatter = all_reduce_, then keep a slice

    allocate      a flat tensor of zeros that this collective is fastest on (shm: memory all ranks see)
    start         all_reduce_ that may return before it is done; wait for the Pending it returns
    labelled      the same collective, whose reductions are called by a name in errors

The defaults move up to p times the bytes that are needed; a collective overrides those it is better at.
Sums of bytes are exact: each byte has one non-zero summand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor

from paceline.comm.links import Link
from paceline.comm.world import World

Operation = Literal["sum", "avg", "min", "max", "product"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


class Pending(Protocol):
    """A collective that was started."""

    def wait(self) -> None:
        """Returns when it is done; raises what went wrong."""


class Done:
    """What was done at once."""

    def wait(self) -> None: ...


class Collective(ABC):
    """Constructed on every rank of a world; all ranks call the same methods in the same order."""

    asynchronous: ClassVar[bool] = False
    """Does `start` return before the work is done? Then it pays to start early."""
    candidate: ClassVar[bool] = True
    """May `auto` measure and choose it? Not one that is there to be read or to choose."""
    compares_calls: ClassVar[bool] = False
    """Does it compare the ranks' calls by itself, at every call? Then nobody else has to."""
    link: Link | None = None
    """What it sends over, where that is a link; a decorator that counts may take its place."""
    uses: tuple[str, ...] = ()
    """The names of those that it sends over, where it has chosen them."""

    @classmethod
    def unavailable(cls) -> str | None:
        """Why it cannot be used on this machine at all (None: it can, as far as can be known before)."""
        return None

    def __init__(self, world: World) -> None:
        self.rank = world.rank
        self.size = world.size

    @abstractmethod
    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        """Combine `flat` over all ranks, in place."""

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        """Every rank gets rank `src`'s values, in place."""
        raw = flat.view(torch.uint8)
        if self.rank != src:
            raw.zero_()
        self.all_reduce_(raw)
        return flat

    def all_gather(self, flat: Tensor) -> Tensor:
        """The tensors of all ranks, one row a rank."""
        rows = torch.zeros(self.size, *flat.shape, dtype=flat.dtype, device=flat.device)
        rows[self.rank] = flat
        self.all_reduce_(rows.view(-1).view(torch.uint8))
        return rows

    def reduce_scatter(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        """This rank's slice of the combined tensor; slices differ in length by one element at most."""
        whole = self.all_reduce_(flat.clone(), operation)
        return whole.tensor_split(self.size)[self.rank].clone()

    def reduce_scatter_lent(self, flat: Tensor, out: Tensor, operation: Operation = "sum") -> Tensor:
        """The same into `out`, of a tensor that nobody changes until all have come to the next `barrier`: it
        is lent to the other ranks, which saves a meeting where they read it in place."""
        return out.copy_(self.reduce_scatter(flat, operation))

    def allocate(self, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A flat tensor of zeros for repeated use; all ranks allocate the same, in the same order."""
        return torch.zeros(length, dtype=dtype, device=device)

    def start(self, flat: Tensor, operation: Operation = "sum") -> Pending:
        """Like all_reduce_, but `flat` may be touched only after the wait."""
        self.all_reduce_(flat, operation)
        return Done()

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self.all_reduce_(torch.zeros(1))

    def labelled(self, label: str) -> Collective:
        """This collective, with a label on its reductions; one that compares no calls needs none."""
        return self

    def decorated(self, by: Callable[[Collective], Collective]) -> Collective:
        """This collective inside a decorator; one that measures stays outside of it."""
        return by(self)

    def regroup(self, ranks: Sequence[int]) -> None:
        """From here on these ranks of its world alone; only one that is made for it can."""
        raise NotImplementedError(f"{type(self).__name__} cannot go on with {len(ranks)} of its ranks")

    def close(self) -> None:  # noqa: B027 - most collectives own nothing that needs closing
        """Give back what the collective owns. Closing twice is harmless."""
