"""shm: the ranks of one node meet in memory that all of them map. No stock PyTorch has it.

    small     [r0][r1][r2]   copy in ─ barrier ─ every rank combines all of them in rank order
    large     rounds of 512 kB: copy in ─ barrier ─ rank r combines slice r ─ barrier ─ copy out
    allocated buffers that lie there already: barrier ─ rank r combines slice r in place ─ barrier

Cost: no messages. A rank copies n bytes in and n out (nothing on allocated buffers, where it reads n and
writes n bytes in all), and comes to one barrier (small), two a round (large) or two (allocated). Ranks
compare their calls at the first barrier, always: a comparison of 64 bytes a rank.
"""

from __future__ import annotations

import copy
import warnings
from typing import ClassVar, Literal

import torch
from torch import Tensor

from paceline.comm.calls import DTYPES, OPERATION_BITS, label_number
from paceline.comm.collectives._base import OPERATIONS, Collective, Operation
from paceline.comm.shm import unavailable
from paceline.comm.shm.group import Group
from paceline.comm.world import World
from paceline.errors import ConfigError

_DTYPE = {dtype: number for number, dtype in enumerate(DTYPES)}
_OPERATION = {name: number for number, name in enumerate(OPERATIONS)}
_BOOL: dict[Operation, Operation] = {"sum": "max", "product": "min", "min": "min", "max": "max"}


class Shm(Collective):
    """Ranks of one node, CPU tensors."""

    compares_calls: ClassVar[bool] = True

    @classmethod
    def unavailable(cls) -> str | None:
        return unavailable()

    def __init__(
        self, world: World, *, chunk_kb: int = 512, memory: Literal["anonymous", "dev_shm"] = "anonymous"
    ) -> None:
        super().__init__(world)
        self._group = Group(world, chunk=chunk_kb * 1024, named=memory == "dev_shm")
        self._core = self._group.core
        self._reduce = self._core.all_reduce
        self._operations = _OPERATION

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        number = _DTYPE.get(flat.dtype)
        if number is None or not flat.is_cpu or not flat.is_contiguous() or number == 9:
            return self._unusual(flat, operation)
        if self._reduce(flat.data_ptr(), flat.numel(), number, self._operations[operation]):
            self._group.fail()
        return flat

    def _unusual(self, flat: Tensor, operation: Operation) -> Tensor:
        """Booleans as the smallest and largest of their bytes, strided tensors through a copy."""
        self._check(flat)
        if flat.dtype == torch.bool:
            if operation not in _BOOL:
                raise ConfigError("shm cannot average booleans; convert them to float32 first")
            operation = _BOOL[operation]
        elif flat.dtype not in _DTYPE:
            raise ConfigError(f"shm cannot combine {flat.dtype}; convert it to one of {_names()}")
        whole = flat.contiguous()
        if self._reduce(whole.data_ptr(), whole.numel(), _DTYPE[flat.dtype], self._operations[operation]):
            self._group.fail()
        if whole is not flat:
            flat.copy_(whole)
        return flat

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        self._check(flat)
        whole = flat.contiguous()
        number = _DTYPE.get(flat.dtype, -1)
        if self._core.broadcast(whole.data_ptr(), whole.nbytes, _counted(whole, number), number, src):
            self._group.fail()
        if whole is not flat:
            flat.copy_(whole)
        return flat

    def all_gather(self, flat: Tensor) -> Tensor:
        self._check(flat)
        whole = flat.contiguous()
        rows = torch.empty(self.size, *flat.shape, dtype=flat.dtype)
        number = _DTYPE.get(flat.dtype, -1)
        count = _counted(whole, number)
        if self._core.all_gather(whole.data_ptr(), rows.data_ptr(), whole.nbytes, count, number):
            self._group.fail()
        return rows

    def reduce_scatter(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        length, more = divmod(flat.numel(), self.size)
        return self._scattered(flat, flat.new_empty(length + (self.rank < more)), operation, lent=False)

    def reduce_scatter_lent(self, flat: Tensor, out: Tensor, operation: Operation = "sum") -> Tensor:
        length, more = divmod(flat.numel(), self.size)
        mine = length + (self.rank < more)
        if out.numel() != mine or out.dtype is not flat.dtype or not (out.is_cpu and out.is_contiguous()):
            raise ConfigError(f"shm: `out` has to be {mine} {flat.dtype} in one piece, on the CPU")
        return self._scattered(flat, out, operation, lent=True)

    def _scattered(self, flat: Tensor, out: Tensor, operation: Operation, *, lent: bool) -> Tensor:
        self._check(flat)
        number = _DTYPE.get(flat.dtype)
        if number is None or flat.dtype == torch.bool:
            return out.copy_(super().reduce_scatter(flat, operation))
        whole = flat.contiguous()
        x = whole.data_ptr(), out.data_ptr(), whole.numel(), number, self._operations[operation], lent
        if self._core.reduce_scatter(*x):
            self._group.fail()
        return out

    def allocate(self, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Lies in shared memory: what is combined there is neither copied in nor out."""
        if length == 0 or torch.device(device).type != "cpu":
            return super().allocate(length, dtype, device)
        try:
            memory, offset = self._group.region(length * dtype.itemsize)
        except ConfigError as error:  # every rank hears the same, so all of them go on without
            warnings.warn(f"{error}; buffers are copied instead", RuntimeWarning, stacklevel=2)
            return super().allocate(length, dtype, device)
        return torch.frombuffer(memory, dtype=dtype, count=length, offset=offset)

    def barrier(self) -> None:
        if self._core.barrier():
            self._group.fail()

    def labelled(self, label: str) -> Collective:
        """The same group; the label lies in the operation's number, so it costs a call nothing."""
        other = copy.copy(self)
        number = label_number(label) << OPERATION_BITS
        other._operations = {name: place | number for name, place in _OPERATION.items()}
        return other

    def close(self) -> None:
        self._group.close()

    def _check(self, flat: Tensor) -> None:
        if not flat.is_cpu:
            raise ConfigError(f"shm works on CPU tensors and got one on {flat.device}; choose native")


def _counted(flat: Tensor, number: int) -> int:
    """What ranks compare: elements of a type that has a number, bytes of one that has none."""
    return flat.numel() if number >= 0 else flat.nbytes


def _names() -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
