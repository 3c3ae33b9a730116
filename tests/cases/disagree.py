"""What a rank does in the tests of ranks that call different things."""

from __future__ import annotations

import time

import torch

from paceline.comm.checked import Checked, checked
from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.errors import PacelineError
from paceline.registry import COLLECTIVES

CPU = torch.device("cpu")


def _odd_label(c: Collective, odd: bool) -> None:
    first, second = (c.labelled(f"bucket {n}") for n in ((1, 0) if odd else (0, 1)))
    first.start(torch.zeros(1024), "avg").wait()
    second.start(torch.zeros(1024), "avg").wait()


CASES = {
    "shape": lambda c, odd: c.all_reduce_(torch.zeros(1024 + odd)),
    "type": lambda c, odd: c.all_reduce_(torch.zeros(1024, dtype=torch.int32 if odd else torch.float32)),
    "operation": lambda c, odd: c.broadcast_(torch.zeros(1024)) if odd else c.all_reduce_(torch.zeros(1024)),
    "reduce operation": lambda c, odd: c.all_reduce_(torch.zeros(1024), "max" if odd else "sum"),
    "root": lambda c, odd: c.broadcast_(torch.zeros(1024), 1 if odd else 0),
    "order": lambda c, odd: [c.all_reduce_(torch.zeros(n)) for n in ((7, 5) if odd else (5, 7))],
    "order of buckets": _odd_label,
    "large and small": lambda c, odd: c.all_reduce_(torch.zeros(2_000_000 if odd else 10)),
    "a type without a number": lambda c, odd: c.broadcast_(
        torch.zeros(300_000, dtype=torch.complex128 if odd else torch.complex64)
    ),
    "too few": lambda c, odd: c.close() if odd else c.barrier(),
}


def made(world: World, name: str, options: dict | None = None) -> Collective:
    return checked(COLLECTIVES.make(name, world, options=options), world)


def said_by(function) -> tuple[str, float]:
    """The error as one line, and the seconds until it came."""
    began = time.monotonic()
    try:
        function()
    except PacelineError as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return "nothing", time.monotonic() - began


def disagree(world: World, name: str, cases: list[str], options: dict | None = None) -> dict:
    """The last rank is the odd one; afterwards another collective of the same world works."""
    found = {}
    for case in cases:
        collective = made(world, name, options)
        for _ in range(3):
            collective.barrier()
        said, seconds = said_by(lambda: CASES[case](collective, world.rank == world.size - 1))  # noqa: B023
        again, _ = said_by(collective.barrier)
        collective.close()
        other = COLLECTIVES.make(name, world, options=options)
        found[case] = said, again, seconds, float(other.all_reduce_(torch.ones(3)).sum())
        other.close()
    return found


def in_the_order_of_calls(world: World, name: str, options: dict | None = None) -> list:
    """All verbs through a checked collective give what they give without."""
    plain, collective = COLLECTIVES.make(name, world, options=options), made(world, name, options)
    mine = torch.arange(10.0) + world.rank
    found = []
    for c in (plain, collective):
        buffer = c.allocate(10, torch.float32, CPU)
        buffer.copy_(mine)
        c.labelled("bucket 3").start(buffer, "max").wait()
        c.barrier()
        found.append(
            [
                c.all_reduce_(mine.clone(), "avg"),
                c.broadcast_(mine.clone(), world.size - 1),
                c.all_gather(mine),
                c.reduce_scatter(mine),
                buffer.clone(),
            ]
        )
    collective.close()
    collective.close()
    return found


class Counted(Collective):
    """Counts the exchanges that checking makes."""

    def __init__(self, inner: Collective) -> None:
        self.rank, self.size, self.inner, self.exchanges = inner.rank, inner.size, inner, 0

    def all_reduce_(self, flat, operation="sum"):
        return self.inner.all_reduce_(flat, operation)

    def all_gather(self, flat):
        self.exchanges += 1
        return self.inner.all_gather(flat)


def exchanges(world: World, calls: int) -> tuple[bool, int]:
    """Is it decorated, and how often do that many calls exchange what they are?"""
    counted = Counted(COLLECTIVES.make("naive", world, options={"link": "thread"}))
    collective = checked(counted, world)
    for _ in range(calls):
        collective.all_reduce_(torch.ones(1))
    collective.close()
    return isinstance(collective, Checked), counted.exchanges
