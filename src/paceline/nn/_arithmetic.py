"""The arithmetic of batch norm around its two messages, in torch's operations: any type, any device.

    forward    statistics   Σx, Σx², count        ─▶ message ─▶ normalise   y = (x - mean)/std · weight + bias
    backward   sums         Σdy, Σdy·(x - mean)   ─▶ message ─▶ gradient    dx

The message is float64. Sums before it are float32 (float64 for float64) of x less this rank's own mean, and
the mean is split into `about`, of the type of x, and the small `rest`: x - about is exact where x is near
it. So x with mean = 10⁴ std loses nothing that float32 could tell. Kept for backward is one tensor of three
rows: about, rest, 1/std. Cost: some 30 operations; _kernels.py does the same in four calls.
"""

from __future__ import annotations

import torch
from torch import Tensor

Count = float | Tensor
"""Samples per channel over all ranks; a tensor where reading it would hold up a GPU."""


def statistics(x: Tensor, message: Tensor) -> None:
    """Write this rank's Σx, Σx² and count of every channel."""
    channels = x.shape[1]
    count = x.numel() // channels
    if count == 0:
        message.zero_()
        return
    x = _wide(x)
    about = x.mean(_others(x))
    away = x - _along(about, x)
    rest = away.mean(_others(x)).double()
    mean = about.double() + rest
    variance = away.square_().mean(_others(x)).double() - rest * rest
    message[:channels] = mean * count
    message[channels:-1] = (variance + mean * mean) * count
    message[-1] = count


def normalise(
    x: Tensor,
    message: Tensor,
    count: Count,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor, Tensor] | None,
    eps: float,
    momentum: float,
) -> tuple[Tensor, Tensor]:
    """(y, kept) by the statistics of all ranks; the running ones are moved towards them."""
    channels = x.shape[1]
    mean, square = (message[:-1] / count).view(2, channels)
    variance = (square - mean * mean).clamp_(min=0)
    if running is not None:
        unbiased = variance * momentum * (count / (count - 1))
        running[0].copy_(running[0].double() * (1 - momentum) + mean * momentum)
        running[1].copy_(running[1].double() * (1 - momentum) + unbiased)
    wide = _wide(x)
    inverse = (variance + eps).rsqrt_()
    about = mean.to(wide.dtype)
    kept = torch.stack([about, (mean - about).to(wide.dtype), inverse.to(wide.dtype)])
    scale = kept[2] if weight is None else kept[2] * weight
    shift = -kept[1] * scale
    if bias is not None:
        shift = shift + bias
    y = torch.addcmul(_along(shift, x), wide - _along(about, x), _along(scale, x))
    return y.to(x.dtype), kept


def sums(
    dy: Tensor, x: Tensor, kept: Tensor, message: Tensor, weight: Tensor | None, wanted: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Write this rank's Σdy and Σdy·(x - mean); returns its own gradients of weight and bias, if wanted."""
    about, rest, inverse = kept
    dy, others = dy.to(kept.dtype), _others(x)
    first = dy.sum(others)
    second = (dy * (_wide(x) - _along(about, x))).sum(others) - rest * first
    message[: x.shape[1]] = first
    message[x.shape[1] : -1] = second
    message[-1] = 0
    dtype = kept.dtype if weight is None else weight.dtype
    return (second * inverse).to(dtype) if wanted[0] else None, first.to(dtype) if wanted[1] else None


def gradient(
    dy: Tensor, x: Tensor, message: Tensor, kept: Tensor, weight: Tensor | None, count: Count
) -> Tensor:
    """dx, by the sums of all ranks."""
    about, rest, inverse = kept
    first, second = (message[:-1] / count).view(2, x.shape[1]).to(kept.dtype)
    slope = second * inverse * inverse
    scale = inverse if weight is None else inverse * weight
    dx = dy.to(kept.dtype) - _along(slope, x) * (_wide(x) - _along(about, x))
    return dx.add_(_along(rest * slope - first, x)).mul_(_along(scale, x)).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """In the type that is computed in: halves in float32."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _others(x: Tensor) -> list[int]:
    """Every dimension but the channels'."""
    return [d for d in range(x.dim()) if d != 1]


def _along(values: Tensor, x: Tensor) -> Tensor:
    """One value a channel, in the shape that goes with x."""
    return values.view(-1, *[1] * (x.dim() - 2))
