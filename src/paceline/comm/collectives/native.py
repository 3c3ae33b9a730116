"""native: torch's own all-reduce, over the world's process group (gloo on CPU, nccl on GPU).

Cost: gloo's ring, 2(p-1) messages of n/p elements a rank through TCP, also between ranks of one node.
The reference every other collective is compared with.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.comm.collectives._base import Collective, Operation

_TORCH = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.SUM,  # gloo has no average; the division is ours
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}


class Native(Collective):
    """`torch.distributed.all_reduce` and its relatives."""

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        if flat.numel():
            dist.all_reduce(flat, _TORCH[operation])
        if operation == "avg":
            _divide_(flat, self.size)
        return flat

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        if flat.numel():
            dist.broadcast(flat, src)
        return flat

    def all_gather(self, flat: Tensor) -> Tensor:
        rows = torch.empty(self.size, *flat.shape, dtype=flat.dtype, device=flat.device)
        dist.all_gather(list(rows), flat)
        return rows

    def barrier(self) -> None:
        dist.barrier()


def _divide_(flat: Tensor, count: int) -> None:
    if flat.is_floating_point():
        flat.div_(count)
    else:
        flat.copy_(torch.div(flat, count, rounding_mode="trunc"))
