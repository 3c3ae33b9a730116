"""What a rank does in the contract tests of the collectives."""

from __future__ import annotations

import os
import time
from unittest import mock

import torch

from paceline.comm.collectives import Collective, auto
from paceline.comm.collectives.native import Native
from paceline.comm.measured import Measured
from paceline.comm.world import World
from paceline.metrics.clock import Meter
from paceline.registry import COLLECTIVES


def values(rank: int, length: int, kind: str, seed: int = 0) -> torch.Tensor:
    """This rank's input: small whole numbers for integer types, normal numbers otherwise."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    dtype = getattr(torch, kind)
    if dtype.is_floating_point:
        return torch.randn(length, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(-3, 4, (length,), generator=generator).to(dtype)


def all_reduce(world: World, name: str, lengths: list[int], kinds: list[str], operations: list[str]) -> dict:
    """Every combination once; returns what this rank holds afterwards."""
    collective = COLLECTIVES.make(name, world)
    found = {}
    for length in lengths:
        for kind in kinds:
            for operation in operations:
                mine = values(world.rank, length, kind)
                assert collective.all_reduce_(mine, operation) is mine
                found[length, kind, operation] = mine
    collective.close()
    collective.close()
    return found


def others(world: World, name: str, length: int) -> dict:
    """broadcast_, all_gather, reduce_scatter, barrier, of the collective itself and of the defaults."""
    found = {}
    for label, collective in _both(name, world):
        found[label, "broadcast"] = collective.broadcast_(
            values(world.rank, length, "float32"), world.size - 1
        )
        found[label, "all_gather"] = collective.all_gather(values(world.rank, length, "float32"))
        found[label, "reduce_scatter"] = collective.reduce_scatter(values(world.rank, length, "float64"))
        collective.barrier()
    return found


def measured(world: World, name: str) -> tuple[int, int, bool]:
    """Calls and bytes that the decorator counts."""
    meter = Meter()
    collective = Measured(COLLECTIVES.make(name, world), meter)
    collective.all_reduce_(torch.zeros(10))
    collective.broadcast_(torch.zeros(5, dtype=torch.float64))
    collective.all_gather(torch.zeros(3))
    collective.reduce_scatter(torch.zeros(7))
    collective.barrier()
    span = meter.take_span()
    return meter.calls, meter.bytes, span is not None and 0 <= span[1] - span[0] <= meter.seconds + 1


def _both(name: str, world: World):
    own = COLLECTIVES.make(name, world)

    class Plain(type(own).__mro__[-3]):  # the seam itself: its defaults over this all_reduce_
        def all_reduce_(self, flat, operation="sum"):
            return own.all_reduce_(flat, operation)

    return [("own", own), ("default", Plain(world))]


def auto_twice(world: World, cache: str, others: list[str]) -> dict:
    """`auto` among stand-ins, constructed twice: what was chosen, and how often it was measured."""
    os.environ["PACELINE_CACHE"] = cache
    os.environ["PACELINE_AUTO_SECONDS"] = "0.2"
    counts = [0]

    class Race(auto._Race):
        def run(self):
            counts[0] += 1
            return super().run()

    def make(name: str, world: World, options: dict | None = None) -> Collective:
        return {"slow": Slow, "broken": Broken, "refuses": Refuses}.get(name, Native)(world)

    found = {"choices": []}
    with mock.patch.object(auto, "_Race", Race), mock.patch.object(auto.COLLECTIVES, "make", make), \
            mock.patch.object(auto, "candidates", lambda _: others):  # fmt: skip
        for _ in range(2):
            collective = auto.Auto(world)
            x = collective.allocate(5, torch.float32, world.device)
            collective.start(x.fill_(world.rank + 1)).wait()
            found["choices"].append(collective._choices)
            collective.close()
        found["sum"], found["measured"] = x, counts[0]
    return found


class Slow(Native):
    """20 ms a call."""

    def all_reduce_(self, flat, operation="sum"):
        time.sleep(0.02)
        return super().all_reduce_(flat, operation)


class Broken(Native):
    """Cannot be constructed on rank 1."""

    def __init__(self, world):
        super().__init__(world)
        if world.rank == 1:
            raise OSError("no room")


class Refuses(Native):
    """Takes float32 only."""

    def all_reduce_(self, flat, operation="sum"):
        if flat.dtype is not torch.float32:
            raise TypeError("float32 only")
        return super().all_reduce_(flat, operation)
