"""Exact metrics: every rank evaluates its own contiguous slice, sums and counts are added over all ranks.

No sample is padded, repeated or lost, whatever the size and the number of ranks. One message of three
float64 numbers; a mean of per-rank means would be wrong as soon as the slices differ in size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from paceline.comm.collectives import Collective
from paceline.data.resident import Part
from paceline.data.shard import evaluation_slice

_BATCH = 512


@dataclass(frozen=True)
class Metrics:
    """Over the whole part, the same on every rank."""

    loss: float
    accuracy: float
    count: int


def evaluate(model: nn.Module, part: Part, collective: Collective, device: torch.device) -> Metrics:
    """Loss and accuracy of `model` in evaluation mode."""
    mine = evaluation_slice(len(part), collective.rank, collective.size)
    sums = torch.zeros(3, dtype=torch.float64)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for first in range(mine.start, mine.stop, _BATCH):
            images, labels = part.batch(torch.arange(first, min(first + _BATCH, mine.stop)))
            outputs, labels = model(images.to(device)), labels.to(device)
            sums[0] += cross_entropy(outputs, labels, reduction="sum").item()
            sums[1] += int((outputs.argmax(1) == labels).sum())
            sums[2] += len(labels)
    model.train(was_training)
    return exact(collective, sums)


def exact(collective: Collective, sums: torch.Tensor) -> Metrics:
    """[loss, correct, count] of each rank -> the metrics over all of them."""
    loss, correct, count = collective.all_reduce_(sums, "sum").tolist()
    return Metrics(loss / count, correct / count, int(count))
