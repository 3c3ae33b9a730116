"""Gate: has every rank of this node come to the same call? A hint that costs about 1 µs and never waits long.

    rank 0   [ calls begun | padding ]  ┐
    rank 1   [ calls begun | padding ]  ┼─ each writes its own count, reads the others'
    rank 2   [ calls begun | padding ]  ┘

The last rank to come to a collective finds the others in it and does its part at once, on its own thread; the
others have left it to theirs. Nothing is handed over by these counts, so they need no order in memory: a
count seen late costs a switch of threads and nothing else. Ranks of several nodes have no gate.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from paceline.comm.shm.memory import shared
from paceline.comm.world import World
from paceline.errors import PacelineError
from paceline.metrics import resources

_LINE = 8  # counts of 8 bytes: a cache line each
_PATIENCE = 20e-6  # seconds; a switch of threads and back takes about as long


class Gate:
    """Counts the calls of each rank; made on all ranks."""

    def __init__(self, world: World) -> None:
        self._calls = 0
        self._counts: memoryview | None = None
        self._mine = world.rank * _LINE
        self._others = [rank * _LINE for rank in range(world.size) if rank != world.rank]
        self._patience = _PATIENCE if world.local_size <= resources.usable_cores() else 0.0
        if world.nodes == 1:
            with contextlib.suppress(PacelineError, OSError):
                self._counts = memoryview(shared(world, world.size * _LINE * 8)).cast("q")

    def everybody_is_here(self, clock: Callable[[], float] = time.perf_counter) -> bool:
        """Count a call of this rank; have all others come to as many?"""
        counts = self._counts
        if counts is None:
            return False
        self._calls = calls = self._calls + 1
        counts[self._mine] = calls
        missing = [other for other in self._others if counts[other] < calls]
        if missing and self._patience:
            until = clock() + self._patience
            while missing and clock() < until:
                missing = [other for other in missing if counts[other] < calls]
        return not missing
