"""Messages: what of a bucket is sent. All of it, or rounded to half its length with the rest kept for later.

    gradient ──(+ residual)──▶ rounded to bf16 / fp16 ──▶ all-reduce (avg) ──▶ gradient
                   ▲                    │
                   └── what rounding ───┘      error feedback: nothing is lost, it is only late
                       cut off

Plain rounding loses what is small beside its neighbours in the sum: ranks whose gradients are +1000 + e and
-1000 + e average to 0 instead of e, for ever. With the residual, e is sent as soon as it has added up.
What the collective itself rounds (the mean, once) is not fed back: it is small beside the mean.

Cost: half the bytes; three passes over the bucket; a residual as large as the bucket in every rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.strategies._buckets import Allocate, Bucket

ROUNDED = {"none": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Message:
    """The bucket itself: nothing to pack, nothing to unpack."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.flat = bucket.flat
        self.residual: Tensor | None = None

    def pack(self) -> Tensor:
        """What is to be averaged over the ranks."""
        self.bucket.restore()
        return self.flat

    def unpack(self) -> None:
        """The average is there: make it the gradient."""


class RoundedMessage(Message):
    """The bucket rounded to a shorter type, with error feedback."""

    def __init__(self, bucket: Bucket, dtype: torch.dtype, allocate: Allocate, ranks: int) -> None:
        super().__init__(bucket)
        self._short = allocate(bucket.flat.numel(), dtype, bucket.flat.device)
        self.residual: Tensor = torch.zeros_like(bucket.flat)
        self._largest = torch.finfo(dtype).max / ranks  # so that a sum over the ranks stays finite

    def pack(self) -> Tensor:
        self.bucket.restore()
        self.residual.add_(self.flat)
        torch.clamp(self.residual, -self._largest, self._largest, out=self.flat)  # flat is free until unpack
        self._short.copy_(self.flat)
        self.residual.sub_(self._short)
        return self._short

    def unpack(self) -> None:
        self.flat.copy_(self._short)


def allocate_private(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros in this rank's own memory: where it is the rounded message that travels."""
    return torch.zeros(length, dtype=dtype, device=device)


def message_for(bucket: Bucket, rounded: torch.dtype | None, allocate: Allocate, ranks: int) -> Message:
    """Rounded where that is asked for and makes it shorter."""
    if rounded is None or bucket.flat.element_size() <= rounded.itemsize:
        return Message(bucket)
    return RoundedMessage(bucket, rounded, allocate, ranks)
