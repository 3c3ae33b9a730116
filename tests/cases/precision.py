"""What a rank does in the tests of the precision probe: models that are slow or wrong in one precision."""

from __future__ import annotations

import time

import torch
from torch import nn

from paceline.comm.world import World
from paceline.registry import COLLECTIVES
from paceline.train.precision import Probe, probe


class Biased(nn.Module):
    """Takes 20 ms in the precision named `slow`; in bfloat16 its outputs are `factor` times too large."""

    def __init__(self, slow: str, factor: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3)
        )
        self.slow, self.factor = slow, factor

    def forward(self, x):
        low = torch.is_autocast_enabled("cpu")
        if self.slow == ("bf16" if low else "fp32"):
            time.sleep(0.02)
        return self.inner(x) * (self.factor if low else 1.0)


def probed(world: World, slow: list[str], factor: float = 1.0) -> tuple[Probe, bool]:
    """The finding, and whether model and random numbers are as before."""
    torch.manual_seed(5)
    model = Biased(slow[world.rank], factor)
    before = [t.clone() for t in model.state_dict().values()]
    state = torch.get_rng_state()
    found = probe(model, (1, 4, 4), 3, 4, COLLECTIVES.make("native", world))
    same = all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    clean = all(p.grad is None for p in model.parameters())
    return found, same and clean and torch.equal(state, torch.get_rng_state())
