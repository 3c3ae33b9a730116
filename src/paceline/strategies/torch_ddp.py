"""torch_ddp: PyTorch's own DistributedDataParallel, unchanged, for comparison.

It reduces buckets while backward still runs, so only the part of a reduction that outlasts the computation
costs time: from the moment the first layer's gradient (the last to be computed) is there until backward
returns. That exposed part is what the meter is told; messages happen inside torch and are not counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.metrics.clock import Meter
from paceline.strategies._base import Strategy


class TorchDdp(Strategy):
    """The stock module over the world's process group."""

    collectives: ClassVar[tuple[str, ...] | None] = ("native",)

    def __init__(
        self, world: World, collective: Collective, meter: Meter, *, bucket_mb: float = 25.0
    ) -> None:
        super().__init__(world, collective, meter)
        self._bucket_mb = bucket_mb
        self._last_gradient = 0.0

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        super().attach(model, optimizer)
        first = next(p for p in model.parameters() if p.requires_grad)
        first.register_hook(self._note_last_gradient)
        self._module = DistributedDataParallel(model, bucket_cap_mb=self._bucket_mb)
        return self._module

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        with self._module.no_sync():
            yield

    def backward(self, loss: Tensor) -> None:
        self._last_gradient = time.monotonic()  # where no gradient reaches the first layer: now
        super().backward(loss)
        if self._module.require_backward_grad_sync:
            self.meter.expose(self._last_gradient, time.monotonic())

    def step(self) -> None:
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _note_last_gradient(self, _gradient: Tensor) -> None:
        self._last_gradient = time.monotonic()
