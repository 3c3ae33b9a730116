"""A group of ranks over shared memory: meets the others, holds the core, turns its numbers into errors.

    memory    [ one line of control a rank | two buffers a rank ]           see _core.c
    waiting   spin while every rank has a core, offer the core to others, sleep (woken by the kernel); every
              0.1 s of sleep the missing ranks are looked for, so a death is noticed within that time

Spinning never happens where ranks outnumber the cores they may use: the cores of all ranks' affinities
together, cut by the container's quota.
"""

from __future__ import annotations

import importlib
import mmap
import os
import struct
from pathlib import Path
from typing import Any, NoReturn

from paceline.comm.calls import Call, difference
from paceline.comm.shm import unavailable
from paceline.comm.shm.memory import shared
from paceline.comm.world import World
from paceline.errors import ConfigError, PacelineError, RankFailed, RanksDisagree
from paceline.metrics import resources

SPIN_NS = 40_000
YIELD_NS = 300_000
DIRECT_BYTES = 256 * 1024
"""A tensor of up to this, divided by p², is combined by every rank as a whole, which saves a barrier."""

_ABOUT = struct.Struct("qq6Q")  # process, its start, its cores as bits
_ABOUT_AT = 192  # bytes into a rank's line of control
_FINE, _DISAGREE, _DEAD, _LEFT, _SILENT, _INTERRUPTED = range(6)


class Group:
    """All ranks of `world`; `core` has the collectives, each of which returns 0 or calls for `fail`."""

    def __init__(self, world: World, *, chunk: int = 512 * 1024, named: bool = False) -> None:
        if reason := unavailable():
            raise ConfigError(f"no shared memory between ranks: {reason}; choose another collective")
        _core = importlib.import_module("paceline.comm.shm._core")

        self._world = world
        line = int(_core.LINE_BYTES)
        memory, chunk = _arena(world, chunk, line, named)
        _ABOUT.pack_into(memory, world.rank * line + _ABOUT_AT, *_about())
        _everybody(world)
        about = [_ABOUT.unpack_from(memory, rank * line + _ABOUT_AT) for rank in range(world.size)]
        self._watched = [_watch(rank != world.rank, *them[:2]) for rank, them in enumerate(about)]
        cores = _cores(about)
        spins = max(world.size, world.local_size) <= cores
        self.core: Any = _core.Group(
            memory,
            world.rank,
            world.size,
            [them[0] for them in about],
            self._watched,
            chunk,
            min(chunk, max(1024, DIRECT_BYTES // world.size**2)),
            SPIN_NS if spins else 0,
            YIELD_NS,
            int(world.deadline * 1e9),
        )

    def region(self, nbytes: int) -> tuple[mmap.mmap, int]:
        """Memory with one part a rank, known to the core, and where this rank's part begins."""
        stride = max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE
        memory = shared(self._world, stride * self._world.size)
        self.core.add(memory, stride)
        return memory, stride * self._world.rank

    def fail(self) -> NoReturn:
        """Raise what the core found."""
        state, culprit, number, rows = self.core.problem()
        calls = [Call.decode(row[:6]) for row in rows]
        mine = calls[self._world.rank]
        if state == _DISAGREE:
            line = difference(calls)
            raise RanksDisagree(line or _regions(rows))
        if state == _INTERRUPTED:
            raise PacelineError(f"rank {culprit} was interrupted in {mine}; this group cannot go on")
        reason = {
            _DEAD: f"ended while rank {self._world.rank} waited for it in {mine}",
            _LEFT: f"closed its collective while rank {self._world.rank} waited for it in {mine}",
            _SILENT: f"did not come to {mine} within {self._world.deadline:g} s",
        }[state]
        if culprit == self._world.rank:  # it was stopped or starved, and goes on after the others gave it up
            reason = (
                f"was given up by a rank that had waited {self._world.deadline:g} s for it; now in {mine}"
            )
        last = calls[culprit]
        seen = f"; its last call was {last}" if last.number and last.number < number else ""
        raise RankFailed(culprit, reason + seen)

    def close(self) -> None:
        """Tell the others, give back the descriptors. Closing twice is harmless."""
        self.core.leave()
        for descriptor in self._watched:
            if descriptor >= 0:
                os.close(descriptor)
        self._watched = []


def _arena(world: World, chunk: int, line: int, named: bool) -> tuple[mmap.mmap, int]:
    """Control and buffers; smaller buffers where memory is short."""
    least = max(1024, 64 * world.size)
    chunk = max(chunk, least)
    while True:
        try:
            return shared(world, world.size * (line + 2 * chunk), named=named), chunk
        except ConfigError:
            if chunk // 8 < least:
                raise
            chunk //= 8


def _about() -> tuple[int, ...]:
    """This process as the others must know it."""
    mask = sum(1 << core for core in _affinity())
    return os.getpid(), _started(os.getpid()), *((mask >> 64 * i) & (2**64 - 1) for i in range(6))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _cores(about: list[tuple[int, ...]]) -> float:
    """Cores the ranks may use together."""
    together = 0
    for them in about:
        together |= sum(bits << 64 * i for i, bits in enumerate(them[2:]))
    return min(together.bit_count() or 1, resources.cpu_quota() or float("inf"))


def _everybody(world: World) -> None:
    """Every rank has written its line: met in the store, because the core is not there yet."""
    turn = world.store.add(f"shm/{world.rank}/count", 1)
    if world.store.add(f"shm/{turn}/ready", 1) == world.size:
        world.store.set(f"shm/{turn}/all", "")
    world.store.get(f"shm/{turn}/all")


def _started(process: int) -> int:
    """When a process started, in ticks since boot: with its number, the same for no other process."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _watch(other: bool, process: int, started: int) -> int:
    """A descriptor that becomes readable when the process ends; -1 where the system has none."""
    if not other or process == os.getpid() or not hasattr(os, "pidfd_open"):
        return -1
    try:
        descriptor = os.pidfd_open(process)
    except OSError:
        return -1
    if _started(process) != started:  # it ended and its number was taken by another
        os.close(descriptor)
        return -1
    return descriptor


def _regions(rows: list[tuple[int, ...]]) -> str:
    """The calls are alike, but not the memory they were made on."""
    names = [
        f"part {row[7]} of allocated buffer {row[6]}" if row[6] >= 0 else "a tensor of its own"
        for row in rows
    ]
    rank = next(rank for rank, name in enumerate(names) if name != names[0])
    return f"ranks disagree: rank {rank} gave {names[rank]}, rank 0 {names[0]}, to {Call.decode(rows[0][:6])}"
