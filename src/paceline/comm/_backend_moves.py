"""torch.distributed's calls in terms of a Collective: lists, roots and slices become one flat tensor.

Results are written through `.data`, so a tensor that autograd has saved does not count as changed. What needs
a copy (rows of a gathered tensor, strided memory) is copied here, at memory speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.comm.collectives import Collective, Operation


def all_reduce(collective: Collective, tensors: Sequence[Tensor], operation: Operation) -> None:
    """In place, one after the other."""
    for tensor in tensors:
        collective.all_reduce_(tensor.data, operation)


def broadcast(collective: Collective, tensor: Tensor, root: int) -> None:
    """In place."""
    collective.broadcast_(tensor.data, root)


def reduce(collective: Collective, tensor: Tensor, operation: Operation, root: int) -> None:
    """The others' tensors stay as they are."""
    mine = tensor.data if collective.rank == root else tensor.data.clone()
    collective.all_reduce_(mine, operation)


def all_gather(collective: Collective, outs: Sequence[Tensor], x: Tensor) -> None:
    """One tensor a rank."""
    rows = collective.all_gather(x.detach().reshape(-1))
    for out, row in zip(outs, rows, strict=True):
        _write(out, row)


def all_gather_single(collective: Collective, outs: Sequence[Tensor], xs: Sequence[Tensor]) -> None:
    """Each as one tensor with a row, or a stretch, a rank."""
    for out, x in zip(outs, xs, strict=True):
        _write(out, collective.all_gather(x.detach().reshape(-1)))


def reduce_scatter(
    collective: Collective, out: Tensor, parts: Sequence[Tensor], operation: Operation
) -> None:
    """One part a rank; parts of different sizes are combined as a whole."""
    whole = torch.cat([part.detach().reshape(-1) for part in parts])
    sizes = [part.numel() for part in parts]
    if len(set(sizes)) == 1:
        _write(out, collective.reduce_scatter(whole, operation))
    else:
        _write(out, collective.all_reduce_(whole, operation).split(sizes)[collective.rank])


def reduce_scatter_single(
    collective: Collective, outs: Sequence[Tensor], xs: Sequence[Tensor], operation: Operation
) -> None:
    """Each of them holds one stretch a rank."""
    for out, x in zip(outs, xs, strict=True):
        _write(out, collective.reduce_scatter(x.detach().reshape(-1), operation))


def _write(out: Tensor, values: Tensor) -> None:
    out.data.copy_(values.view(out.shape))
