"""Precision: bfloat16 where a probe at the start shows that it is faster and right, else float32.

    copy of the model, synthetic batch of the real shape, the run's own threads
      outputs and gradients in both  ──▶ far apart?               float32, and a line says how far
      passes in turns, about 1 s     ──▶ not surely faster?       float32, and a line gives both times
                                     ──▶ else bfloat16 in forward and backward

All ranks probe at the same time, because they will train at the same time; rank 0's finding is everybody's.
Weights, gradients, the optimizer and evaluation stay in float32. Cost: at most 2 s, and one broadcast.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paceline.comm.collectives import Collective
from paceline.metrics.measure import interleave, median_interval, ratio

_ROUNDS = 7  # a 95 % interval of the median needs 6
_PASS_SECONDS = 0.1  # 2 × 7 passes of this length, and half a second for finding how many samples that is
_FIRST = 8  # samples of the first passes, from which the time of more is estimated
_OUTPUTS_APART = 0.05  # bfloat16 keeps 8 bits: 0.4 % a rounding; resnet18's outputs differ by about 1 %
_GRADIENTS_APART = 0.25


@dataclass(frozen=True)
class Probe:
    """What rank 0 found. Seconds are of one forward and backward; `apart` are relative distances."""

    batch: int
    fp32_seconds: float
    bf16_seconds: float
    slowest_ratio: float
    """The upper end of the 95 % interval of bf16's time over fp32's."""
    outputs_apart: float
    gradients_apart: float

    @property
    def right(self) -> bool:
        """Is what bfloat16 computes close to float32?"""
        return self.outputs_apart <= _OUTPUTS_APART and self.gradients_apart <= _GRADIENTS_APART

    @property
    def chosen(self) -> bool:
        return self.right and self.slowest_ratio < 1

    def line(self) -> str:
        """For the user: what was decided, and why."""
        times = (
            f"{1000 * self.bf16_seconds:.3g} ms in bfloat16, {1000 * self.fp32_seconds:.3g} ms in float32 "
            f"(forward and backward, {self.batch} samples)"
        )
        if self.chosen:
            return f"trains in bfloat16, evaluates in float32: {times}"
        if not self.right:
            return (
                f"trains in float32 although bf16 was asked for: bfloat16's outputs are "
                f"{self.outputs_apart:.0%}, its gradients {self.gradients_apart:.0%} away from float32's; "
                f"{times}"
            )
        return f"trains in float32 although bf16 was asked for, which is not surely faster here: {times}"


def autocast(device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """What a micro-batch's forward pass runs in when bfloat16 was chosen."""
    return lambda: torch.autocast(device.type, torch.bfloat16)


def full() -> AbstractContextManager[object]:
    """What it runs in otherwise."""
    return contextlib.nullcontext()


def probe(
    model: nn.Module, shape: tuple[int, ...], classes: int, batch: int, collective: Collective
) -> Probe:
    """Measure on every rank; returns rank 0's finding everywhere. The model is left as it is."""
    device = next(model.parameters()).device
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = _measured(copy.deepcopy(model), torch.randn(batch, *shape, device=device), classes)
    numbers = torch.tensor(list(vars(found).values()), dtype=torch.float64)
    first, *others = collective.broadcast_(numbers).tolist()
    return Probe(int(first), *others)


def _measured(model: nn.Module, images: Tensor, classes: int) -> Probe:
    low = autocast(images.device)
    labels = torch.arange(len(images), device=images.device) % classes
    model.train()
    few = images[:_FIRST], labels[:_FIRST]
    seconds = min(_timed(lambda: _pass(model, *few, full)) for _ in range(2))  # the first also warms up
    keep = max(2, int(len(few[0]) * _PASS_SECONDS / max(seconds, 1e-9)))
    images, labels = images[:keep], labels[:keep]
    for kind in (full, low):
        _pass(model, images, labels, kind)
    cases = {"fp32": full, "bf16": low}
    found = interleave(
        {name: lambda kind=kind: _pass(model, images, labels, kind) for name, kind in cases.items()},  # type: ignore[misc]
        _ROUNDS,
    )
    fp32, bf16 = (median_interval(found[name]).median for name in cases)
    model.eval()  # dropout off; and BatchNorm by its running statistics, which the passes above have warmed
    exact, rounded = (_pass(model, images, labels, kind) for kind in cases.values())
    return Probe(
        len(images),
        fp32,
        bf16,
        median_interval(ratio(found["bf16"], found["fp32"])).high,
        *(_apart(a, b) for a, b in zip(rounded, exact, strict=True)),
    )


def _pass(
    model: nn.Module, images: Tensor, labels: Tensor, precision: Callable[[], AbstractContextManager[object]]
) -> tuple[Tensor, Tensor]:
    """One forward and backward: outputs and gradients, each as one flat tensor."""
    model.zero_grad(set_to_none=True)
    with precision():
        outputs = model(images)
        loss = cross_entropy(outputs, labels)
    loss.backward()
    gradients = [p.grad.reshape(-1).float() for p in model.parameters() if p.grad is not None]
    return outputs.detach().float(), torch.cat(gradients or [torch.zeros(1)])


def _apart(found: Tensor, wanted: Tensor) -> float:
    """Relative distance; infinite where something is not a number."""
    distance = ((found - wanted).norm() / wanted.norm().clamp_min(1e-12)).item()
    return distance if distance == distance else float("inf")


def _timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
