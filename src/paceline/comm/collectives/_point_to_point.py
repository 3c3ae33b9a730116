"""What collectives over a link share: the arithmetic of two tensors, and what a tensor must be.

    type                    travels as      is added as      rounded
    float32, float64        itself          itself           at every addition
    bfloat16, float16       float32 *       float32          once, at the end
    whole numbers           itself          itself           never; they wrap around, averages are truncated
    bool                    itself          or / and         –

    * partial results; inputs and final results travel as they are. min and max need no rounding at all.

A collective says who talks to whom; all else is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from paceline.comm.calls import DTYPES
from paceline.comm.collectives._base import Collective, Operation
from paceline.comm.links import Link, make_link
from paceline.comm.world import World
from paceline.errors import ConfigError

_COMBINE: dict[Operation, Callable[..., Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
    "product": torch.mul,
}
_BOOL: dict[Operation, Operation] = {"sum": "max", "product": "min", "min": "min", "max": "max"}
_HALVES = (torch.bfloat16, torch.float16)
Chunks = tuple[Tensor, ...]
"""A tensor in one piece a rank; lengths differ by one at most, and the first is the longest."""


class Arithmetic:
    """How tensors of one type become one, by one operation."""

    def __init__(self, dtype: torch.dtype, operation: Operation, size: int) -> None:
        if dtype not in DTYPES:
            names = ", ".join(str(each).removeprefix("torch.") for each in DTYPES)
            raise ConfigError(f"cannot combine {dtype} over ranks; convert it to one of {names}")
        if dtype == torch.bool:
            if operation not in _BOOL:
                raise ConfigError("cannot average booleans over ranks; convert them to float32 first")
            operation = _BOOL[operation]
        widened = dtype in _HALVES and operation not in ("min", "max")
        self.partial = torch.float32 if widened else dtype
        """The type of partial results."""
        self._combine = _COMBINE[operation]
        self._divisor = size if operation == "avg" else 1

    def begin(self, x: Tensor) -> Tensor:
        """As a partial result: x itself where its type allows."""
        return x.to(self.partial)

    def combine_(self, partial: Tensor, x: Tensor) -> None:
        """Take x into a partial result."""
        self._combine(partial, x, out=partial)

    def finish(self, partial: Tensor, out: Tensor) -> None:
        """The result: divided where it is an average, rounded to the type of `out`."""
        if self._divisor > 1:
            mode = None if partial.is_floating_point() else "trunc"
            torch.div(partial, self._divisor, rounding_mode=mode, out=partial)
        if partial.data_ptr() != out.data_ptr():
            out.copy_(partial)


class PointToPoint(Collective):
    """A collective that uses nothing but a link; `link` is the name of one."""

    def __init__(self, world: World, *, link: str = "torch_p2p") -> None:
        super().__init__(world)
        self.link: Link = make_link(link, world)

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        arithmetic = Arithmetic(flat.dtype, operation, self.size)
        return self._in_place(flat, lambda whole: self._all_reduce_(whole, arithmetic))

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        return self._in_place(flat, lambda whole: self._broadcast_(whole, src))

    @abstractmethod
    def _all_reduce_(self, flat: Tensor, arithmetic: Arithmetic) -> None:
        """Combine a contiguous tensor of one dimension, not empty, over two or more ranks."""

    @abstractmethod
    def _broadcast_(self, flat: Tensor, src: int) -> None:
        """Give such a tensor of rank `src` to all."""

    def _in_place(self, flat: Tensor, work: Callable[[Tensor], None]) -> Tensor:
        """Do it to the tensor itself where its memory is in one piece, else to a copy."""
        if self.size > 1 and flat.numel():
            whole = flat.contiguous()
            work(whole.view(-1))
            if whole is not flat:
                flat.copy_(whole)
        return flat

    def close(self) -> None:
        self.link.close()


class InHalves(PointToPoint):
    """An all-reduce in two halves that are collectives themselves: chunks to their owners, then to all."""

    def _all_reduce_(self, flat: Tensor, arithmetic: Arithmetic) -> None:
        chunks = flat.tensor_split(self.size)
        self._to_owners(chunks, arithmetic, chunks[self.rank])
        self._to_everybody(chunks)

    @abstractmethod
    def _to_owners(self, chunks: Chunks, arithmetic: Arithmetic, out: Tensor) -> None:
        """Leave this rank's chunk, combined over all ranks, in `out`, which may be the chunk itself."""

    @abstractmethod
    def _to_everybody(self, chunks: Chunks) -> None:
        """Fill in the chunks of the other ranks."""

    def reduce_scatter(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        arithmetic = Arithmetic(flat.dtype, operation, self.size)
        chunks = flat.contiguous().view(-1).tensor_split(self.size)
        if self.size == 1:
            return chunks[0].clone()
        mine = torch.empty_like(chunks[self.rank])
        self._to_owners(chunks, arithmetic, mine)
        return mine

    def all_gather(self, flat: Tensor) -> Tensor:
        rows = torch.empty(self.size, *flat.shape, dtype=flat.dtype, device=flat.device)
        rows[self.rank] = flat
        self._to_everybody(rows.unbind())
        return rows
