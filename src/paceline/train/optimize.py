"""Optimizers (torch's own, fused where the device has it) and learning-rate schedules (pure functions).

constant    ▁▂▄█████████████     warm-up is a straight line to the peak, for every schedule
cosine      ▁▂▄██▇▇▆▅▄▃▂▁▁▁
one_cycle   ▁▃▅▇█▇▇▆▅▄▃▂▁▁▁     rises from 1/25 of the peak, ends at 1/10,000 of it
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from paceline.config import RunConfig

_ONE_CYCLE_START = 1 / 25
_ONE_CYCLE_END = 1e-4


def make_optimizer(config: RunConfig, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """The configured optimizer over the trainable parameters."""
    trainable = [p for p in parameters if p.requires_grad]
    if config.optimizer == "adamw":
        return torch.optim.AdamW(
            trainable, lr, betas=(config.momentum, 0.999), weight_decay=config.weight_decay, fused=True
        )
    return torch.optim.SGD(
        trainable,
        lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        fused=True,
    )


def factor(schedule: str, step: int, steps: int, warmup_steps: int) -> float:
    """The share of the peak learning rate that step number `step` (from 0) of `steps` uses."""
    one_cycle = schedule == "one_cycle"
    if step < warmup_steps:
        low = _ONE_CYCLE_START if one_cycle else 0.0
        return low + (1 - low) * (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    end = _ONE_CYCLE_END if one_cycle else 0.0
    done = (step - warmup_steps) / max(1, steps - warmup_steps)
    return end + (1 - end) * (1 + math.cos(math.pi * done)) / 2


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """For all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = lr
