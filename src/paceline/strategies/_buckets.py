"""Flat buffers: many tensors as one, so that a message is long and there are few of them.

parameters  w3 b3 w2 b2 w1 b1          (the order in which backward finishes them)
bucket 0    [ w3 | b3 | w2 ]           every .grad is a view of its bucket: backward writes in place,
bucket 1    [ b2 | w1 | b1 ]           nothing is copied in or out, and zeroing is one operation a bucket
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from paceline.comm.collectives import Collective


class GradientBuckets:
    """Persistent flat gradient buffers over the trainable parameters of one model."""

    def __init__(self, parameters: Iterable[nn.Parameter], bucket_bytes: int) -> None:
        self.flats: list[Tensor] = []
        trainable = [p for p in parameters if p.requires_grad]
        for group in _grouped(trainable[::-1], bucket_bytes):
            flat = torch.zeros(sum(p.numel() for p in group), dtype=group[0].dtype, device=group[0].device)
            for parameter, view in zip(group, _views(flat, group), strict=True):
                parameter.grad = view
            self.flats.append(flat)

    def zero_(self) -> None:
        """All gradients zero; they stay views of the buckets."""
        for flat in self.flats:
            flat.zero_()


def broadcast_together(collective: Collective, tensors: Sequence[Tensor], src: int = 0) -> None:
    """Every rank gets rank `src`'s tensors, in one message per type instead of one per tensor."""
    with torch.no_grad():
        for group in _by_kind(tensors):
            flat = torch.cat([t.detach().reshape(-1) for t in group])
            collective.broadcast_(flat, src)
            for tensor, view in zip(group, _views(flat, group), strict=True):
                tensor.copy_(view)


def _views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Consecutive pieces of `flat`, shaped like the given tensors."""
    pieces = flat.split([t.numel() for t in like])
    return [piece.view(t.shape) for piece, t in zip(pieces, like, strict=True)]


def _grouped(parameters: Sequence[nn.Parameter], limit: int) -> list[list[nn.Parameter]]:
    """Consecutive parameters of one type and device, closed when a bucket reaches its size."""
    groups: list[list[nn.Parameter]] = []
    size = 0
    for parameter in parameters:
        last = groups[-1][-1] if groups else None
        same = last is not None and (last.dtype, last.device) == (parameter.dtype, parameter.device)
        if not same or size >= limit:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.nbytes
    return groups


def _by_kind(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return list(kinds.values())
