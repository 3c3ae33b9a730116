"""Who has made how many updates, in memory that all ranks of a node see; and a lock between processes.

rank r's line   [ updates begun | updates finished | floor ]     64 bytes, written by rank r alone

    begun ≠ finished     an update of r is under way
    floor                updates, or "no matter" while r rests: what the others must not run away from

A count may be seen a moment late, never torn (8 aligned bytes) and never lost (one writer).
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from paceline.comm.world import World
from paceline.errors import RankFailed
from paceline.metrics.clock import Meter

_LINE = 8  # int64
_BEGUN, _FINISHED, _FLOOR = range(3)
_RESTING = np.iinfo(np.int64).max
_LOOK_SECONDS = 100e-6


class Turn:
    """One update: how many the others had made when it began, and whether it met another."""

    def __init__(self, others: int) -> None:
        self.others = others
        self.overlapped = False


class Turns:
    """The counters of all ranks."""

    def __init__(self, world: World, memory: mmap.mmap) -> None:
        self._world = world
        table = np.frombuffer(memory, np.int64, world.size * _LINE).reshape(world.size, _LINE)
        self._table = table
        self._mine = table[world.rank]
        self._others = np.flatnonzero(np.arange(world.size) != world.rank)

    @staticmethod
    def nbytes(size: int) -> int:
        """Memory for so many ranks."""
        return size * _LINE * 8

    def others(self) -> int:
        """Updates that the other ranks have finished."""
        return int(self._table[self._others, _FINISHED].sum())

    def all(self) -> int:
        """Updates that all ranks together have finished."""
        return int(self._table[:, _FINISHED].sum())

    @contextlib.contextmanager
    def updating(self) -> Iterator[Turn]:
        """An update of this rank is under way in here."""
        self._mine[_BEGUN] += 1
        before = self._table[self._others, :2].copy()
        turn = Turn(int(before[:, _FINISHED].sum()))
        yield turn
        after = self._table[self._others, _BEGUN]
        turn.overlapped = bool((after != before[:, _FINISHED]).any())
        self._mine[_FINISHED] += 1
        self._mine[_FLOOR] = self._mine[_FINISHED]

    def rest(self) -> None:
        """Nobody needs to wait for this rank."""
        self._mine[_FLOOR] = _RESTING

    def resume(self) -> None:
        """This rank counts again."""
        self._mine[_FLOOR] = self._mine[_FINISHED]

    def wait_for_slowest(self, bound: int, meter: Meter) -> None:
        """Return when this rank is at most `bound` updates ahead of every rank that does not rest."""
        if self._mine[_FINISHED] - self._table[:, _FLOOR].min() <= bound:
            return
        arrived = time.monotonic()
        while self._mine[_FINISHED] - self._table[:, _FLOOR].min() > bound:
            if time.monotonic() - arrived > self._world.deadline:
                slowest = int(self._table[:, _FLOOR].argmin())
                raise RankFailed(slowest, f"made no update within {self._world.deadline:g} s")
            time.sleep(_LOOK_SECONDS)
        meter.expose(arrived, time.monotonic())


class FileLock:
    """A lock between processes: flock on a file without a name, one open description a rank."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closing twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def file_lock(world: World, name: str) -> FileLock:
    """The same lock on every rank of this node; the kernel frees it when its holder dies."""
    path = ""
    if world.rank == 0:
        made, path = tempfile.mkstemp(prefix=f"paceline-{name}-")
        os.close(made)
    path = world.agree(f"lock/{name}", path)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    if world.store.add(f"lock/{name}/open", 1) % world.size == 0:  # the last to open takes its name away
        Path(path).unlink()
    return FileLock(descriptor)
