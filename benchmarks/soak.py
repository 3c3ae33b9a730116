"""A million operations of one collective: does anything grow?

    every rank   all verbs in turn, lengths from 0 to 100,000, own tensors and allocated ones; now and then a
                 second collective is made, used and closed
    looked at    anonymous and shared resident memory, descriptors, mappings, threads, names in /dev/shm:
                 after the first tenth and at the end
    right        every reduction has a value that is known, and is compared

The command ends with 1 when a rank's anonymous memory grew by more than 1 MB, or anything else grew at all.

    python benchmarks/soak.py [--operations 1000000] [--ranks 2] [--json benchmarks/results/soak.json]
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

from paceline import atomic
from paceline.comm.collectives import Collective
from paceline.comm.world import World, joined
from paceline.launch import local
from paceline.metrics import resources
from paceline.registry import COLLECTIVES

CPU = torch.device("cpu")
LENGTHS = [1000, 0, 1, 257, 1000, 30_000, 1000, 100_000]
LONG_EVERY = 20  # operations; the others are short, or a million of them would take an hour
GROUP_EVERY = 10_000
MOST_ANONYMOUS = 1 << 20


class Turns:
    """One operation after the other, with what must come out of it."""

    def __init__(self, collective: Collective) -> None:
        self.collective = collective
        self.own = torch.zeros(max(LENGTHS))
        self.shared = collective.allocate(max(LENGTHS), torch.float32, CPU)
        self.sum = float(sum(range(1, collective.size + 1)))

    def one(self, number: int) -> None:
        length = LENGTHS[number // LONG_EVERY % len(LENGTHS)] if number % LONG_EVERY == 0 else 1000
        VERBS[number % len(VERBS)](self, length)

    def filled(self, memory: torch.Tensor, length: int) -> torch.Tensor:
        return memory[:length].fill_(self.collective.rank + 1)

    def expect(self, flat: torch.Tensor, value: float) -> None:
        if flat.numel() and not (flat[0] == flat[-1] == value):
            raise RuntimeError(f"{flat[0]} and {flat[-1]} where {value} should be")

    def reduce(self, length: int) -> None:
        self.expect(self.collective.all_reduce_(self.filled(self.own, length)), self.sum)

    def reduce_shared(self, length: int) -> None:
        self.expect(self.collective.all_reduce_(self.filled(self.shared, length)), self.sum)

    def broadcast(self, length: int) -> None:
        self.expect(
            self.collective.broadcast_(self.filled(self.own, length), self.collective.size - 1),
            self.collective.size,
        )

    def gather(self, length: int) -> None:
        rows = self.collective.all_gather(self.filled(self.own, length))
        self.expect(rows[-1], self.collective.size)

    def scatter(self, length: int) -> None:
        self.expect(
            self.collective.reduce_scatter(self.filled(self.own, length), "max"), self.collective.size
        )

    def barrier(self, length: int) -> None:
        self.collective.barrier()


VERBS = (Turns.reduce, Turns.reduce_shared, Turns.broadcast, Turns.gather, Turns.scatter, Turns.barrier)


def seen() -> dict[str, int]:
    """What this process holds."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "anonymous_bytes": 1024 * int(status["RssAnon"].split()[0]),
        "shared_bytes": 1024 * int(status["RssShmem"].split()[0]),
        "resident_bytes": 1024 * int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "names_in_dev_shm": len(list(Path("/dev/shm").glob("paceline*"))),
    }


def rank(name: str, operations: int, folder: str, place) -> None:
    torch.set_num_threads(1)
    with joined(place, 60) as world:
        collective = COLLECTIVES.make(name, world)
        turns = Turns(collective)

        def some(first: int, last: int) -> None:
            for number in range(first, last):
                turns.one(number)
                if number % GROUP_EVERY == GROUP_EVERY // 2:
                    another(name, world)

        some(0, operations // 10)
        collective.barrier()
        before, began = seen(), time.monotonic()
        some(operations // 10, operations)
        seconds = time.monotonic() - began
        collective.barrier()
        found = {"before": before, "after": seen(), "seconds": seconds}
        Path(folder, f"{place.rank}.json").write_text(json.dumps(found))
        collective.close()


def another(name: str, world: World) -> None:
    """A second collective comes and goes."""
    collective = COLLECTIVES.make(name, world)
    Turns(collective).one(0)
    collective.barrier()
    collective.close()


def growth(found: dict) -> list[str]:
    """What grew, in words."""
    most = {"anonymous_bytes": MOST_ANONYMOUS}
    return [
        f"{what}: {found['before'][what]} before, {found['after'][what]} after"
        for what in ("anonymous_bytes", "threads", "descriptors", "mappings", "names_in_dev_shm")
        if found["after"][what] > found["before"][what] + most.get(what, 0)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--collective", default="shm")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        function = functools.partial(rank, options.collective, options.operations, folder)
        local.start(function, options.ranks, threads=1, deadline=3600)
        ranks = [json.loads(Path(folder, f"{r}.json").read_text()) for r in range(options.ranks)]
    problems = []
    for number, found in enumerate(ranks):
        per_second = 0.9 * options.operations / found["seconds"]
        print(f"rank {number}: {0.9 * options.operations:.0f} operations, {per_second:.0f} a second")
        for what, before in found["before"].items():
            print(f"    {what:18} {before:12} {found['after'][what]:12}")
        problems += [f"rank {number}: {line}" for line in growth(found)]
    print(*(problems or ["nothing grew"]), sep="\n")
    if options.json:
        result = {
            "machine": resources.machine(),
            "commit": resources.commit(),
            "collective": options.collective,
            "operations": options.operations,
            "ranks": ranks,
            "problems": problems,
        }
        atomic.write_text(options.json, json.dumps(result, indent=1) + "\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
