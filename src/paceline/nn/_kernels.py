"""The same arithmetic as _arithmetic.py in four calls of C (_batch_norm.c): float32 on the CPU.

Thirty small operations of torch cost more than the sums of 32 × 1,024 numbers, and each of the four calls
reads the tensor once. Channels-last pictures are rows of channels to it. It is one thread: with many threads
and a large tensor torch's operations take over.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from torch import Tensor

try:
    _core: Any = importlib.import_module("paceline.nn._batch_norm")
except ImportError:  # no C compiler when paceline was installed: everything works, more slowly
    _core = None

FEW_THREADS = 4
SMALL = 1 << 17
"""Elements; above it, and with more than so many threads, torch's operations are faster."""
Shape = tuple[int, int, int]
"""Samples, channels, length."""


def available() -> bool:
    """Was the extension built?"""
    return _core is not None


def takes(x: Tensor, *others: Tensor | None) -> bool:
    """Can it compute on these, and is it the faster way?"""
    return (
        _core is not None
        and x.dtype is torch.float32
        and x.is_cpu
        and all(o is None or (o.dtype is torch.float32 and o.is_contiguous()) for o in others)
        and (x.numel() <= SMALL or torch.get_num_threads() <= FEW_THREADS)
    )


def dense(x: Tensor) -> tuple[Tensor, Shape]:
    """x without gaps, and how it lies there."""
    channels = x.shape[1]
    if not x.is_contiguous():
        for kind, dimensions in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
            if x.dim() == dimensions and x.is_contiguous(memory_format=kind):
                return x, (x.numel() // channels, channels, 1)
        x = x.contiguous()
    return x, (x.shape[0], channels, math.prod(x.shape[2:]))


def like(dy: Tensor, x: Tensor) -> Tensor:
    """dy as float32 in the same places as the dense x."""
    if dy.stride() == x.stride() and dy.dtype is torch.float32:
        return dy
    return torch.empty_like(x).copy_(dy)


def statistics(x: Tensor, message: Tensor, shape: Shape) -> None:
    """Write this rank's Σx, Σx² and count of every channel."""
    _core.statistics(x.data_ptr(), message.data_ptr(), *shape)


def normalise(
    x: Tensor,
    message: Tensor,
    shape: Shape,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor, Tensor] | None,
    eps: float,
    momentum: float,
) -> tuple[Tensor, Tensor]:
    """(y, kept) by the statistics of all ranks; the running ones are moved towards them."""
    y, kept = torch.empty_like(x), torch.empty(3, shape[1])
    mean, variance = running or (None, None)
    _core.normalise(
        x.data_ptr(), y.data_ptr(), message.data_ptr(), kept.data_ptr(), _at(weight), _at(bias), _at(mean),
        _at(variance), *shape, eps, momentum,
    )  # fmt: skip
    return y, kept


def sums(
    dy: Tensor, x: Tensor, kept: Tensor, message: Tensor, shape: Shape, wanted: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Write this rank's Σdy and Σdy·(x - mean); returns its own gradients of weight and bias, if wanted."""
    weight, bias = (torch.empty(shape[1]) if want else None for want in wanted)
    _core.sums(
        dy.data_ptr(), x.data_ptr(), kept.data_ptr(), message.data_ptr(), _at(weight), _at(bias), *shape
    )
    return weight, bias


def gradient(
    dy: Tensor, x: Tensor, message: Tensor, kept: Tensor, shape: Shape, weight: Tensor | None, count: float
) -> Tensor:
    """dx, by the sums of all ranks."""
    dx = torch.empty_like(x)
    _core.gradient(
        dy.data_ptr(),
        x.data_ptr(),
        dx.data_ptr(),
        message.data_ptr(),
        kept.data_ptr(),
        _at(weight),
        *shape,
        count,
    )
    return dx


def _at(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
