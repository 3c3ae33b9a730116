"""Buffers (the running statistics of BatchNorm, say): what becomes of each rank's own.

    broadcast   rank 0's for everybody                                 as torch's DDP does; the default
    average     the mean of the floating ones, rank 0's of the rest    every rank's samples count
    own         each keeps its own                                     ranks then evaluate different models

Cost: one message per type; none for a model without buffers, or for `own`.
"""

from __future__ import annotations

from torch import Tensor

from paceline.comm.collectives import Collective
from paceline.strategies._buckets import average_together, broadcast_together

CHOICES = ("broadcast", "average", "own")


def align_buffers(collective: Collective, buffers: list[Tensor], choice: str) -> None:
    """Make the ranks' buffers agree, by one of CHOICES."""
    if choice == "own":
        return
    averaged = [b for b in buffers if choice == "average" and b.is_floating_point()]
    average_together(collective, averaged)
    broadcast_together(collective, [b for b in buffers if not any(b is a for a in averaged)])
