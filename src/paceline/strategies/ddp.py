"""ddp: every rank computes the gradient of its part of a step; all apply their mean.

    rank 0   forward ─ backward ─▶ bucket ┐                    ┌▶ update
    rank 1   forward ─ backward ─▶ bucket ┼─ all-reduce (avg) ─┼▶ update      the same bits everywhere
    rank 2   forward ─ backward ─▶ bucket ┘                    └▶ update

Cost of a step: one collective a bucket, over as many elements as there are trainable parameters.
Gradients are views of the buckets (no copies); micro-batches that run no step communicate nothing.
"""

from __future__ import annotations

import torch
from torch import nn

from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.metrics.clock import Meter
from paceline.strategies._base import Strategy
from paceline.strategies._buckets import GradientBuckets


class Ddp(Strategy):
    """Synchronous data parallelism over any collective."""

    def __init__(
        self, world: World, collective: Collective, meter: Meter, *, bucket_mb: float = 25.0
    ) -> None:
        super().__init__(world, collective, meter)
        self._bucket_bytes = int(bucket_mb * 2**20)

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        module = super().attach(model, optimizer)
        self._buckets = GradientBuckets(model.parameters(), self._bucket_bytes)
        return module

    def step(self) -> None:
        for flat in self._buckets.flats:
            self.collective.all_reduce_(flat, "avg")
        self.optimizer.step()
        self._buckets.zero_()
