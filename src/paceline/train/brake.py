"""Makes a rank slower than it could be, so that unequal machines can be had on one.

    forward ─ [ pause: (factor - 1) × (this forward + the last backward) ] ─ backward ─▶ …

The pause lies before backward, because a strategy may send gradients while backward still runs. It is a
sleep: a slower machine would not take this one's cores either. It counts as computing.
"""

from __future__ import annotations

import random
import time

from paceline.config.slow import Slowness


class Brake:
    """Of one rank."""

    def __init__(self, slowness: Slowness | None = None, seed: int = 0) -> None:
        self._slowness = slowness or Slowness()
        self._random = random.Random(seed)
        self._backward = 0.0
        self._mark = 0.0

    def forward(self) -> None:
        """A forward pass begins."""
        self._mark = time.monotonic()

    def pause(self) -> None:
        """Between forward and backward."""
        if self._slowness.factor > 1:
            varied = 1 + self._slowness.jitter * self._random.uniform(-1, 1)
            computed = time.monotonic() - self._mark + self._backward
            time.sleep((self._slowness.factor - 1) * varied * computed)
        self._mark = time.monotonic()

    def backward(self, communicated: float) -> None:
        """A backward pass has ended, of which so many seconds were not computing."""
        self._backward = max(0.0, time.monotonic() - self._mark - communicated)
