"""Momentum of ranks that do not wait for each other.

An update that was computed p - 1 updates ago pushes on in a direction that has been left since: on average p
asynchronous ranks behave like one whose momentum is 1 - 1/p (Mitliagkas et al. 2016, "Asynchrony begets
momentum"). Beside it a velocity of momentum m would be one of 1 - (1 - m)/p in all. To get the m that was
asked for, the velocity itself is therefore given

    scaled    max(0, 1 - p·(1 - m))        0.9: 0.8 for 2 ranks, 0.6 for 4, 0.2 for 8, 0 from 10 on
    given     m
"""

from __future__ import annotations

import torch

MOMENTA = ("scaled", "given")


def scaled_momentum(momentum: float, ranks: int) -> float:
    """What is left for a velocity beside the momentum that asynchrony brings along."""
    return max(0.0, 1 - ranks * (1 - momentum))


def scale_momentum_(optimizer: torch.optim.Optimizer, ranks: int) -> None:
    """For all groups of an SGD; optimizers that call it something else are left alone."""
    for group in optimizer.param_groups:
        if group.get("momentum"):
            group["momentum"] = scaled_momentum(group["momentum"], ranks)
            if not group["momentum"]:
                group["nesterov"] = False
