"""One rank's replica as flat memory, so that agreeing on it is one message and not one per parameter.

flat    [ w1 | b1 | w2 | b2 | running mean | running variance ]     parameters (and, by choice, floating
                                                                      buffers) are views of it

The memory is the collective's own where it has some (`Collective.allocate`): averaging then copies nothing.
One flat tensor a type; nearly every model has one type.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paceline.comm.collectives import Collective
from paceline.strategies._buckets import by_type, laid_out_like


class Replica:
    """The trainable parameters of a model and some of its buffers, one behind the other."""

    def __init__(self, model: nn.Module, collective: Collective, *, with_buffers: bool) -> None:
        tensors: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        if with_buffers:
            tensors += [b for b in model.buffers() if b.is_floating_point()]
        self.flats = [self._flat(kind, collective) for kind in by_type(tensors)]

    @staticmethod
    def _flat(tensors: Sequence[Tensor], collective: Collective) -> Tensor:
        flat = collective.allocate(sum(t.numel() for t in tensors), tensors[0].dtype, tensors[0].device)
        views_of(flat, tensors)
        return flat


def views_of(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Every tensor keeps its values and lies in `flat` from here on."""
    with torch.no_grad():
        for tensor, piece in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            view = laid_out_like(tensor, piece)
            view.copy_(tensor)
            tensor.data = view
