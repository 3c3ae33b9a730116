"""What a rank does in the contract tests of the collectives."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore

from paceline.comm.collectives import Collective, auto
from paceline.comm.collectives.native import Native
from paceline.comm.collectives.shm import Shm
from paceline.comm.measured import Measured
from paceline.comm.world import World
from paceline.errors import ConfigError
from paceline.metrics.clock import Meter
from paceline.registry import COLLECTIVES


def values(rank: int, length: int, kind: str, seed: int = 0) -> torch.Tensor:
    """This rank's input: small whole numbers for integer types, normal numbers otherwise."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    dtype = getattr(torch, kind)
    if dtype.is_floating_point:
        return torch.randn(length, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(-3, 4, (length,), generator=generator).to(dtype)


def all_reduce(
    world: World,
    name: str,
    lengths: list[int],
    kinds: list[str],
    operations: list[str],
    options: dict | None = None,
) -> dict:
    """Every combination once; returns what this rank holds afterwards, or why it was refused."""
    collective = COLLECTIVES.make(name, world, options=options)
    found = {}
    for length in lengths:
        for kind in kinds:
            for operation in operations:
                mine = values(world.rank, length, kind)
                try:
                    assert collective.all_reduce_(mine, operation) is mine
                    found[length, kind, operation] = mine
                except ConfigError as error:
                    found[length, kind, operation] = str(error)
    collective.close()
    collective.close()
    return found


def others(
    world: World,
    name: str,
    lengths: list[int],
    kinds: list[str],
    own: bool = True,
    options: dict | None = None,
) -> dict:
    """broadcast_, all_gather, reduce_scatter, barrier, of the collective itself or of the defaults."""
    collective = COLLECTIVES.make(name, world, options=options)
    if not own:
        collective = Plain(collective)
    found = {}
    for length in lengths:
        for kind in kinds:
            mine = values(world.rank, length, kind)
            for root in {0, world.size // 2, world.size - 1}:
                found[length, kind, "broadcast", root] = collective.broadcast_(mine.clone(), root)
            found[length, kind, "all_gather"] = collective.all_gather(mine)
            for operation in ("sum", "max"):
                found[length, kind, "reduce_scatter", operation] = collective.reduce_scatter(mine, operation)
                lent = collective.allocate(length, mine.dtype, mine.device).copy_(mine)
                out = torch.empty_like(found[length, kind, "reduce_scatter", operation])
                found[length, kind, "lent", operation] = collective.reduce_scatter_lent(lent, out, operation)
                collective.barrier()
                lent.zero_()
            found[length, kind, "allocated"] = _same_when_allocated(collective, mine)
            collective.barrier()
    return found


def _same_when_allocated(collective: Collective, mine: torch.Tensor) -> bool:
    """A buffer of the collective's own is zeros, and holds after every verb what a tensor of ours holds."""
    buffer = collective.allocate(mine.numel(), mine.dtype, torch.device("cpu"))
    same = not buffer.any()
    collective.start(buffer.copy_(mine), "max").wait()
    same &= torch.equal(buffer, collective.all_reduce_(mine.clone(), "max"))
    same &= torch.equal(collective.all_reduce_(buffer.copy_(mine)), collective.all_reduce_(mine.clone()))
    same &= torch.equal(collective.broadcast_(buffer.copy_(mine)), collective.broadcast_(mine.clone()))
    same &= torch.equal(collective.all_gather(buffer.copy_(mine)), collective.all_gather(mine))
    return same and torch.equal(collective.reduce_scatter(buffer), collective.reduce_scatter(mine))


class Plain(Collective):
    """The seam itself: its defaults over another's all_reduce_."""

    def __init__(self, inner: Collective) -> None:
        self.rank, self.size, self.inner = inner.rank, inner.size, inner

    def all_reduce_(self, flat, operation="sum"):
        return self.inner.all_reduce_(flat, operation)


def unusual(world: World, name: str, options: dict) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A tensor after it was gathered and scattered; every other element of one, and what should be there."""
    collective = COLLECTIVES.make(name, world, options=options)
    kept = values(world.rank, 40, "float32")
    collective.reduce_scatter(kept)
    collective.all_gather(kept)
    strided, want = kept.clone()[::2], kept[::2].clone()
    collective.all_reduce_(strided)
    collective.broadcast_(strided.view(4, 5).t(), 1)
    return kept, strided, collective.broadcast_(collective.all_reduce_(want), 1)


def beside_gloo(world: World, name: str, cases: list) -> list:
    """Some ranks, some verb, some tensor: what a collective of these ranks gives, and what gloo gives."""
    sets = sorted({tuple(members) for members, *_ in cases})
    teams = {members: _team(world, members, name) for members in sets}
    found = []
    for members, verb, length, kind, operation in cases:
        if world.rank not in members:
            found.append(None)
            continue
        mine = values(world.rank, length, kind)
        root = len(members) - 1
        found.append(
            [
                {
                    "all_reduce": lambda c: c.all_reduce_(mine.clone(), operation),  # noqa: B023
                    "broadcast": lambda c: c.broadcast_(mine.clone(), root),  # noqa: B023
                    "all_gather": lambda c: c.all_gather(mine),  # noqa: B023
                    "reduce_scatter": lambda c: c.reduce_scatter(mine, operation),  # noqa: B023
                }[verb](c)
                for c in teams[tuple(members)]
            ]
        )
    return found


def _team(world: World, members: tuple[int, ...], name: str) -> list[Collective]:
    """A collective of these ranks and gloo's; nothing on the others, which have to help to make gloo's group."""
    group = dist.new_group(list(members))
    if world.rank not in members:
        return []
    store = PrefixStore(str(members), world.store)
    part = dataclasses.replace(
        world, rank=members.index(world.rank), size=len(members), store=store, group=group
    )
    return [COLLECTIVES.make(each, part) for each in (name, "native")]


def lent_into_wrong_memory(world: World) -> list[str]:
    """What is said of a result that is too short, of another type, or not in one piece."""
    collective, flat, said = Shm(world), torch.ones(100), []
    for out in (torch.ones(49), torch.ones(50, dtype=torch.float64), torch.ones(100)[::2]):
        try:
            collective.reduce_scatter_lent(flat, out)
        except ConfigError as error:
            said.append(str(error).removeprefix("shm: ").partition(" in one")[0])
    return said


def agreed(world: World) -> list[str]:
    """What rank 0 said, each time it was asked; it goes ahead of the others."""
    time.sleep(0.05 * world.rank)
    return [world.agree("a name", f"{world.rank}: {number}") for number in range(3)]


def nans(world: World, name: str, options: dict) -> list[torch.Tensor]:
    """Only the last rank has one."""
    collective = COLLECTIVES.make(name, world, options=options)
    found = []
    for operation in ("sum", "avg", "min", "max", "product"):
        mine = torch.tensor([1.0, 2.0, float("nan") if world.rank == world.size - 1 else 3.0])
        found.append(collective.all_reduce_(mine, operation))
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


def auto_twice(world: World, cache: str, others: list[str], extension: bool = True) -> dict:
    """`auto` among stand-ins, constructed twice: what was chosen, and how often it was measured."""
    os.environ["PACELINE_CACHE"] = cache
    os.environ["PACELINE_AUTO_SECONDS"] = "0.2"
    counts = [0]
    if not extension:
        sys.modules["paceline.comm.shm._core"] = None  # as where it could not be built
    real = COLLECTIVES.make

    class Race(auto._Race):
        def run(self):
            counts[0] += 1
            return super().run()

    def make(name: str, world: World, options: dict | None = None) -> Collective:
        if name == "shm":
            return real(name, world)
        return {"slow": Slow, "broken": Broken, "refuses": Refuses}.get(name, Native)(world)

    def load(name: str) -> type[Collective]:
        return Shm if name == "shm" else Native

    found = {"choices": []}
    with mock.patch.object(auto, "_Race", Race), mock.patch.object(auto.COLLECTIVES, "make", make), \
            mock.patch.object(auto.COLLECTIVES, "load", load), \
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
