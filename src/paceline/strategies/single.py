"""single: one process, no cooperation. What every other strategy is compared with."""

from __future__ import annotations

from typing import ClassVar

from paceline.strategies._base import Strategy


class Single(Strategy):
    """Plain PyTorch: backward, optimizer.step(), zero_grad()."""

    most_ranks: ClassVar[int | None] = 1

    def step(self) -> None:
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
