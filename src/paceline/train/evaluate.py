"""Exact metrics: every rank evaluates its own contiguous slice, sums and counts are added over all ranks.

No sample is padded, repeated or lost, whatever the size and the number of ranks. One message of a few float64
numbers; a mean of per-rank means would be wrong as soon as the slices differ in size. A rank without a slice
looks at one sample and counts nothing: it learns what is measured, and runs the calls the others run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paceline.comm.collectives import Collective
from paceline.data.indexed import Indexed, indexed
from paceline.data.resident import Part
from paceline.data.shard import Indices, evaluation_slice
from paceline.errors import ConfigError

_BATCH = 512

Measure = Callable[..., Mapping[str, Tensor | float]]
"""(outputs, *targets of a batch) -> sums over its samples, by name."""


@dataclass(frozen=True)
class Metrics:
    """Over the whole part, the same on every rank."""

    loss: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class Totals:
    """Exact sums over all samples of all ranks, and their number; `totals["loss"]` is the mean."""

    sums: dict[str, float]
    count: int

    def __getitem__(self, name: str) -> float:
        return self.sums[name] / self.count


def classification(outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Cross entropy, and how many are right."""
    return {
        "loss": cross_entropy(outputs, labels, reduction="sum"),
        "accuracy": (outputs.argmax(1) == labels).sum(),
    }


def evaluate(model: nn.Module, part: Part, collective: Collective, device: torch.device) -> Metrics:
    """Loss and accuracy of `model` in evaluation mode."""
    found = totals(model, indexed(part), collective, device)
    return Metrics(found["loss"], found["accuracy"], found.count)


def totals(
    model: nn.Module,
    data: Indexed,
    collective: Collective,
    device: torch.device,
    *,
    measure: Measure = classification,
    batch: int = _BATCH,
) -> Totals:
    """What `measure` sums up over all of `data`, each rank looking at its slice."""
    if not len(data):
        raise ConfigError("there are no samples to evaluate")
    mine = evaluation_slice(len(data), collective.rank, collective.size)
    own = mine.stop - mine.start
    lists = cut(mine.start, mine.stop if own else mine.start + 1, batch, len(data))
    sums = sums_of(model, data.batches(lists), device, measure)
    return added(collective, sums, own)


def cut(start: int, stop: int, batch: int, size: int) -> list[Indices]:
    """The indices from start to stop, in batches; below `size` in any case."""
    if batch < 1:
        raise ConfigError(f"the batch must be at least 1, got {batch}")
    start, stop = min(start, size - 1), min(stop, size)
    return [np.arange(first, min(first + batch, stop)) for first in range(start, stop, batch)]


def sums_of(
    model: nn.Module, batches: Iterable[tuple[Any, ...]], device: torch.device, measure: Measure
) -> dict[str, float]:
    """The sums over some batches, with the model in evaluation mode meanwhile."""
    sums: dict[str, float] = {}
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for inputs, *targets in batches:
                outputs = model(inputs.to(device))
                found = measure(outputs, *(target.to(device) for target in targets))
                for name, value in found.items():
                    sums[name] = sums.get(name, 0.0) + float(value)
    finally:
        model.train(was_training)
    return sums


def added(collective: Collective, sums: Mapping[str, float], own: int) -> Totals:
    """The sums of all ranks that have samples of their own."""
    counted = [sums[name] if own else 0.0 for name in sums]
    flat = torch.tensor([*counted, own], dtype=torch.float64)
    *values, count = collective.all_reduce_(flat, "sum").tolist()
    return Totals(dict(zip(sums, values, strict=True)), int(count))


def exact(collective: Collective, sums: Tensor) -> Metrics:
    """[loss, correct, count] of each rank -> the metrics over all of them."""
    loss, correct, count = collective.all_reduce_(sums, "sum").tolist()
    return Metrics(loss / count, correct / count, int(count))
