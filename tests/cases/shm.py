"""What a rank does in the tests of shared memory."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import torch
from torch.distributed import PrefixStore

from cases.collectives import values
from paceline.comm.world import World
from paceline.errors import PacelineError
from paceline.registry import COLLECTIVES

CPU = torch.device("cpu")


def make(world: World, **options):
    return COLLECTIVES.make("shm", world, options=options)


def small_buffers(world: World, lengths: list[int], kinds: list[str]) -> dict:
    """Every collective in many rounds of the smallest buffers there are, beside torch's own."""
    ours, torchs = make(world, chunk_kb=1), COLLECTIVES.make("native", world)
    found = {}
    for length in lengths:
        for kind in kinds:
            mine = values(world.rank, length, kind)
            for name in ("sum", "avg", "max"):
                found[length, kind, name] = (
                    ours.all_reduce_(mine.clone(), name),
                    torchs.all_reduce_(mine.clone(), name),
                )
            found[length, kind, "broadcast"] = (
                ours.broadcast_(mine.clone(), world.size - 1),
                torchs.broadcast_(mine.clone(), world.size - 1),
            )
            found[length, kind, "all_gather"] = ours.all_gather(mine), torchs.all_gather(mine)
            found[length, kind, "reduce_scatter"] = ours.reduce_scatter(mine), torchs.reduce_scatter(mine)
    ours.close()
    return found


def allocated(world: World, length: int, kind: str) -> dict:
    """Buffers the collective handed out give what tensors of our own give."""
    collective = make(world)
    dtype = getattr(torch, kind)
    buffer = collective.allocate(length, dtype, CPU)
    zeros = bool((buffer == 0).all())
    found = {"zeros": (torch.tensor(zeros), torch.tensor(True))}
    mine = values(world.rank, length, kind)

    def both(name, call):
        buffer.copy_(mine)
        found[name] = call(buffer).clone(), call(mine.clone())

    both("avg", lambda x: collective.all_reduce_(x, "avg"))
    both("middle", lambda x: collective.all_reduce_(x[length // 3 :], "sum"))
    both("broadcast", lambda x: collective.broadcast_(x, 1))
    both("all_gather", collective.all_gather)
    both("reduce_scatter", collective.reduce_scatter)
    collective.close()
    buffer += 1  # still there after the collective is closed
    return found


def halves(world: World, kind: str) -> torch.Tensor:
    """Every 16-bit float there is, through float32 and back: the larger of two equal ones."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(getattr(torch, kind))
    return make(world).all_reduce_(every.clone(), "max").view(torch.int16)


def rounding(world: World, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of two, rounded here and by torch."""
    dtype = getattr(torch, kind)
    parts = [
        values(rank, 50_000, "float32", seed=5) * 2.0 ** values(rank, 50_000, "int32", seed=6)
        for rank in (0, 1)
    ]
    parts = [part.to(dtype) for part in parts]
    ours = make(world).all_reduce_(parts[world.rank].clone(), "sum")
    return ours, (parts[0].float() + parts[1].float()).to(dtype)


def mixed_memory(world: World) -> str:
    """One rank gives a tensor of its own where the others give an allocated buffer."""
    collective = make(world)
    buffer = collective.allocate(200_000, torch.float32, CPU)
    try:
        collective.all_reduce_(buffer if world.rank else torch.zeros(200_000))
    except PacelineError as error:
        return str(error)
    return ""


def part_of(world: World, members: list[int], name: str) -> World | None:
    """A world of some of the ranks."""
    if world.rank not in members:
        return None
    store = PrefixStore(name, world.store)
    return dataclasses.replace(world, rank=members.index(world.rank), size=len(members), store=store)


def groups(world: World) -> list:
    """Evens, odds and everybody, their calls mixed; the sums of the ranks' numbers."""
    half = part_of(world, [r for r in range(world.size) if r % 2 == world.rank % 2], f"half{world.rank % 2}")
    everybody, some = make(world), make(half)
    found = []
    for _ in range(50):
        found.append(float(some.all_reduce_(torch.tensor([float(world.rank)]))))
        found.append(float(everybody.all_reduce_(torch.tensor([float(world.rank)]))))
    return sorted(set(found))


def threads(world: World, rounds: int) -> list[float]:
    """Three threads a rank, each with a group of its own."""
    collectives = [make(world) for _ in range(3)]
    totals = [0.0] * 3

    def work(number: int) -> None:
        for _ in range(rounds):
            totals[number] += float(collectives[number].all_reduce_(torch.full((100 * number + 1,), 1.0))[0])

    running = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(timeout=60)
    return totals


def leaves(world: World) -> str:
    """Rank 1 closes its collective while the others wait for it."""
    collective = make(world)
    collective.barrier()
    if world.rank == 1:
        collective.close()
        return ""
    try:
        collective.barrier()
    except PacelineError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def late(world: World) -> list[str]:
    """Rank 1 comes long after the others gave it up."""
    collective = make(dataclasses.replace(world, deadline=1.0))
    collective.barrier()
    if world.rank == 1:
        time.sleep(2)
    said = []
    for _ in range(2):
        try:
            collective.barrier()
            said.append("passed")
        except PacelineError as error:
            said.append(str(error))
    return said


def in_dev_shm(world: World, length: int) -> tuple[float, list[str]]:
    """A sum through named memory, and what is in /dev/shm while the group is open."""
    collective = make(world, memory="dev_shm")
    total = float(collective.all_reduce_(torch.ones(length))[-1])
    names = [path.name for path in Path("/dev/shm").glob("paceline*")]
    collective.barrier()
    collective.close()
    return total, names
