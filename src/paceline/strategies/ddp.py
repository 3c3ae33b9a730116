"""ddp: every rank computes the gradient of its part of a step; all apply their mean.

    rank 0   forward ─ backward ─▶ bucket ┐                    ┌▶ clip ─▶ update ─▶ zero
    rank 1   forward ─ backward ─▶ bucket ┼─ all-reduce (avg) ─┼▶ clip ─▶ update ─▶ zero     the same bits
    rank 2   forward ─ backward ─▶ bucket ┘                    └▶ clip ─▶ update ─▶ zero     everywhere

Cost of a step: one collective a bucket, over as many elements as there are trainable parameters.
Gradients are views of the buckets (no copies); micro-batches that run no step communicate nothing.

A parameter that no rank used has gradient zero: weight decay and momentum still move it, by the same on all
ranks. (torch skips a parameter without a gradient, but whether one has is known to its own rank alone.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from paceline.comm.background import Background
from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.errors import ConfigError, one_of
from paceline.metrics.clock import Meter
from paceline.strategies._base import Strategy
from paceline.strategies._buckets import GradientBuckets
from paceline.strategies._buffers import CHOICES, align_buffers
from paceline.strategies._messages import ROUNDED, allocate_private, message_for
from paceline.strategies._overlap import Departures
from paceline.strategies._quick import quick_step

_OVERLAP = ("auto", "on", "off")


class Ddp(Strategy):
    """Synchronous data parallelism over any collective.

    `overlap`: start a bucket during backward (auto: if the collective is asynchronous by itself; on: with a
    thread where it is not). `buffers`: what synchronizing does with them; `buffers_every_step`: after each
    step too. `compression`: none, or messages in bf16 or fp16 with error feedback."""

    def __init__(
        self,
        world: World,
        collective: Collective,
        meter: Meter,
        *,
        bucket_mb: float = 25.0,
        overlap: str = "auto",
        buffers: str = "broadcast",
        buffers_every_step: bool = False,
        compression: str = "none",
    ) -> None:
        super().__init__(world, collective, meter)
        one_of("ddp: overlap", overlap, _OVERLAP)
        one_of("ddp: buffers", buffers, CHOICES)
        one_of("ddp: compression", compression, tuple(ROUNDED))
        if not bucket_mb > 0:
            raise ConfigError(f"ddp: bucket_mb = {bucket_mb} must be positive")
        self._bucket_bytes = int(bucket_mb * 2**20)
        self._buffers = buffers
        self._buffers_every_step = buffers_every_step
        self._rounded = ROUNDED[compression]
        self._early = overlap == "on" or (overlap == "auto" and collective.asynchronous)
        self._engine: Collective | None = None
        if self._early and not collective.asynchronous:
            self.collective = self._engine = collective.decorated(
                lambda inner: Background(inner, deadline=world.deadline)
            )
        self._uneven = False

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        known = {id(p) for p in model.parameters()}
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) not in known:
                raise ConfigError(
                    f"the optimizer holds a parameter of shape {tuple(parameter.shape)} that is not the "
                    "model's, so ranks would disagree about it; make it part of the model"
                )
        module = super().attach(model, optimizer)
        allocate = self.collective.allocate
        self._frozen = [p for p in model.parameters() if not p.requires_grad]
        self._buckets = GradientBuckets(
            model.parameters(), self._bucket_bytes, allocate_private if self._rounded else allocate
        )
        self._messages = [
            message_for(bucket, self._rounded, allocate, self.collective.size)
            for bucket in self._buckets.buckets
        ]
        self._make_update = quick_step(optimizer)
        self._departures = Departures(self.collective, self._messages, early=self._early)
        return module

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        with self._departures.held():
            yield

    @contextlib.contextmanager
    def uneven(self) -> Iterator[None]:
        """For a loop of your own whose ranks may run out of data at different times.

        Give `step` the number of samples that the rank's mean loss was taken over. A rank that leaves joins
        in the others' steps with no samples until all have left: every rank makes the same updates, each the
        mean over the samples there are. Costs one more collective a step, of one number; no overlap here."""
        self._uneven = True
        try:
            with self._departures.held():
                yield
                self._buckets.restore()
                self._buckets.zero_()  # a window begun and not finished is no step
                while self._step_of(0):
                    pass
        finally:
            self._uneven = False

    def step(self, samples: int | None = None) -> None:
        """Make one update. `samples`, in `uneven` alone, is how many this rank's mean loss was taken over."""
        if (samples is not None) != self._uneven:
            raise ConfigError("step(samples=…) and `with strategy.uneven():` go together; one is missing")
        if samples is None:
            self._update()
        else:
            self._step_of(samples)

    def _step_of(self, samples: int) -> bool:
        """One update weighted by samples; False, and none, when no rank has any."""
        total = torch.tensor([float(samples)], dtype=torch.float64)
        self.collective.all_reduce_(total, "sum")
        if not total:
            return False
        self._buckets.restore()
        self._buckets.scale_(samples * self.collective.size / total.item())
        self._update()
        return True

    def _update(self) -> None:
        for parameter in self._frozen:
            if parameter.requires_grad:
                raise ConfigError(
                    f"a frozen parameter of shape {tuple(parameter.shape)} was unfrozen after the strategy "
                    "was attached, so its gradient is not averaged; unfreeze it before"
                )
        self._departures.finish()
        self.clip()
        self._make_update()
        self._buckets.zero_()
        if self._buffers_every_step:
            self._align_buffers()

    def clip(self) -> None:
        if self.clip_norm is not None:
            self._buckets.clip_(self.clip_norm)

    def synchronize(self) -> None:
        self._align_buffers()

    def _align_buffers(self) -> None:
        align_buffers(self.collective, list(self.model.buffers()), self._buffers)

    def state_dict(self) -> dict[str, Any]:
        """What rounding has held back: each rank's own."""
        kept = [message.residual.clone() for message in self._messages if message.residual is not None]
        return {"residual": kept} if kept else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        residuals = [message.residual for message in self._messages if message.residual is not None]
        kept: list[Tensor] = state.get("residual", [])
        if [r.shape for r in residuals] != [k.shape for k in kept] and kept:
            raise ConfigError(
                f"ddp: the state holds residuals of {[len(k) for k in kept]} elements, this run has "
                f"{[len(r) for r in residuals]}; resume with the same compression and bucket_mb"
            )
        for residual, value in zip(residuals, kept or [torch.zeros(())] * len(residuals), strict=True):
            residual.copy_(value)

    def close(self) -> None:
        if hasattr(self, "_departures"):
            self._departures.close()
        if self._engine is not None:
            self._engine.close()
