"""Board: numbers and a barrier in memory that forked ranks share; made before the fork.

    wait()     semaphores: ranks that outnumber the cores have to sleep
               a core for every rank: they read counters without sleep, again and again until they all come
               within 20 µs of each other, so that all of them hold their cores when the clock starts
    share(x)   every rank writes its number ─► barrier ─► every rank reads all ─► barrier
    tell(x)    how far the world is, for the launcher to read

It exists to measure collectives without using one. Ranks with a core each must not sleep here: the kernel
tends to wake a sleeper on the core of whoever woke it, and two ranks on one core take turns for milliseconds
while the other core is idle (measured: 4.6 µs instead of 0.8 µs for `shm`, 1,000 elements, 2 ranks). A
barrier of 2 ranks takes about 5 µs, of 32 on two cores some milliseconds; every wait ends after the deadline.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import threading
import time

from paceline.errors import PacelineError
from paceline.metrics.resources import usable_cores

_SPIN_SECONDS = 0.02  # of reading without offering the core
_TOGETHER = 20e-6  # seconds between the first and the last
_TRYING = 0.05  # seconds, on a machine so busy that they hardly ever come together


class Board:
    """Two numbers a rank and one for the launcher."""

    def __init__(self, ranks: int, deadline: float) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 8 * (ranks + 1))).cast("d")  # anonymous, shared by fork
        self._counters = memoryview(mmap.mmap(-1, 8 * ranks)).cast("Q")
        self._times = [memoryview(mmap.mmap(-1, 8 * ranks)).cast("d") for _ in range(2)]  # used in turns
        self._barrier = multiprocessing.get_context("fork").Barrier(ranks, timeout=deadline)
        self._ranks, self._rank = ranks, 0
        self._deadline = deadline
        self._sleeps = ranks > usable_cores()

    def sit(self, rank: int) -> Board:
        """Called by each rank once it is forked."""
        self._rank = rank
        return self

    def wait(self) -> None:
        """Returns when every rank has called it."""
        if self._sleeps:
            try:
                self._barrier.wait()
            except threading.BrokenBarrierError as error:
                raise self._late() from error
        else:
            first, last = began = self._arrivals()
            while last - first > _TOGETHER and last - began[1] < _TRYING:
                first, last = self._arrivals()  # every rank sees the same times: all try equally often

    def _arrivals(self) -> tuple[float, float]:
        """Returns when every rank has come: when the first and when the last did."""
        wanted = self._counters[self._rank] + 1
        times = self._times[wanted % 2]
        began = times[self._rank] = time.monotonic()
        self._counters[self._rank] = wanted
        while min(self._counters) < wanted:
            waited = time.monotonic() - began
            if waited > self._deadline:
                raise self._late()
            if waited > _SPIN_SECONDS:
                os.sched_yield()
        return min(times), max(times)

    def _late(self) -> PacelineError:
        return PacelineError(f"a rank did not come to the barrier within {self._deadline:g} s")

    def share(self, number: float) -> list[float]:
        """The numbers of all ranks, in rank order."""
        self._numbers[1 + self._rank] = number
        self.wait()
        numbers = list(self._numbers[1:])
        self.wait()
        return numbers

    def tell(self, fraction: float) -> None:
        """To the launcher; rank 0 speaks for all."""
        if self._rank == 0:
            self._numbers[0] = fraction

    @property
    def told(self) -> float:
        return self._numbers[0]
