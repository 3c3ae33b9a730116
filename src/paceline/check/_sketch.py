"""Eight numbers that tell two large vectors apart: projections on fixed random signs.

    x  =  rows of 4,096        sketch_i = sum over rows of  r_i[row] · (row · c_i)       c_i, r_i: signs ±1

Linear: the sketch of a sum is the sum of the sketches, so ranks' gradients can be added, averaged and
compared from what each wrote, without their gradients. The root mean square of a sketch is about the vector's
length (within a quarter or so, with eight). Cost: 8 multiplications an element, in float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor

PROJECTIONS = 8
_WIDTH = 4096


def sketch(tensors: Iterable[Tensor | None]) -> list[float]:
    """The projections of all tensors as one vector; None counts as zeros."""
    total = torch.zeros(PROJECTIONS, dtype=torch.float64)
    for number, tensor in enumerate(tensors):
        if tensor is not None:
            total += _projected(tensor.detach(), number)
    return [float(value) for value in total]


def _projected(tensor: Tensor, number: int) -> Tensor:
    flat = (tensor.to_dense() if tensor.is_sparse else tensor).reshape(-1).to("cpu", torch.float64)
    rows = flat.numel() // _WIDTH
    row_signs = _signs(number + 1, rows + 1)
    columns = _columns()
    whole = (flat[: rows * _WIDTH].view(rows, _WIDTH) @ columns) * row_signs[:rows]
    rest = flat[rows * _WIDTH :]
    return whole.sum(0) + (rest @ columns[: rest.numel()]) * row_signs[rows]


@cache
def _columns() -> Tensor:
    return _signs(0, _WIDTH)


def _signs(seed: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)  # its own: the script's random numbers stay as they are
    return torch.randint(0, 2, (rows, PROJECTIONS), generator=generator).to(torch.float64).mul_(2).sub_(1)
