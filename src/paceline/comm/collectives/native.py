"""native: torch's own all-reduce, over the world's process group (gloo on CPU, nccl on GPU).

Cost: gloo's ring, 2(p-1) messages of n/p elements a rank through TCP, also between ranks of one node.
The reference every other collective is compared with.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.comm.collectives._base import Collective, Operation
from paceline.comm.world import World
from paceline.errors import ConfigError

_TORCH = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.SUM,  # gloo has no average; the division is ours
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}


# Types that gloo takes; others are moved as bytes, and combined as a type that holds the same values.
_TAKEN = {
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
    torch.uint8, torch.int8, torch.int32, torch.int64,
}  # fmt: skip
_AS = {torch.int16: torch.int32, torch.bool: torch.uint8}
_BOOL: dict[Operation, Operation] = {"sum": "max", "product": "min", "min": "min", "max": "max"}


class Native(Collective):
    """Torch's own collectives, called on the process group itself: it need not be torch's default one."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._group = world.group

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        if flat.dtype in _AS:
            return self._converted(flat, operation)
        if flat.numel():
            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp(_TORCH[operation])
            self._group.allreduce([flat], options).wait()
        if operation == "avg":
            _divide_(flat, self.size)
        return flat

    def _converted(self, flat: Tensor, operation: Operation) -> Tensor:
        if flat.dtype == torch.bool:
            if operation not in _BOOL:
                raise ConfigError("cannot average booleans over ranks; convert them to float32 first")
            operation = _BOOL[operation]
        return flat.copy_(self.all_reduce_(flat.to(_AS[flat.dtype]), operation))

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        if flat.dtype not in _TAKEN:
            self.broadcast_(flat.view(torch.uint8), src)
        elif flat.numel():
            options = dist.BroadcastOptions()
            options.rootRank = src
            self._group.broadcast([flat], options).wait()
        return flat

    def all_gather(self, flat: Tensor) -> Tensor:
        rows = torch.empty(self.size, *flat.shape, dtype=flat.dtype, device=flat.device)
        moved = flat.dtype if flat.dtype in _TAKEN else torch.uint8
        self._group.allgather([[row.view(moved) for row in rows]], [flat.view(moved)]).wait()
        return rows

    def barrier(self) -> None:
        self._group.barrier().wait()


def _divide_(flat: Tensor, count: int) -> None:
    if flat.is_floating_point():
        flat.div_(count)
    else:
        flat.copy_(torch.div(flat, count, rounding_mode="trunc"))
