"""auto: the collective that was fastest here for this size and type, by a table measured once a machine.

    rank 0 has a table? ──yes──► its text through the store ─► every rank has the same choices
             │ no
             ▼
    every candidate constructed on all ranks ─► sizes × [first call: drop the slow] × more calls ─► slowest
    rank's median ─► the same numbers on every rank ─► table, kept in the user's cache by rank 0

Candidates are the registry's collectives that say so, less those that some rank could not construct (across
nodes, those of one node). Cost: one measurement of about 1.5 s per machine, version and number of ranks
(PACELINE_AUTO_SECONDS; rank 0 says so); afterwards one look-up a call, about 1 µs, and no message. One rank
alone measures nothing and takes the first that can be had.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.atomic import write_json
from paceline.comm.collectives._auto_table import (
    SIZES,
    TYPES,
    Choices,
    as_choices,
    choose,
    decode,
    encode,
    fastest,
    path_of,
)
from paceline.comm.collectives._base import Collective, Operation, Pending
from paceline.comm.world import World
from paceline.data.sources import cache_folder
from paceline.errors import ConfigError, PacelineError
from paceline.metrics import resources
from paceline.registry import COLLECTIVES

_SECONDS = 1.5
_HOPELESS = 8.0  # times the fastest: not measured again at this size
_REPEATS = (3, 50)
_MOST_BYTES = 1 << 28  # of the tensors of all ranks
_FIRST = ("float", SIZES["float"][0])  # measured whatever it takes: there is always a choice


class Auto(Collective):
    """Sends every tensor to the collective that its table names."""

    candidate: ClassVar[bool] = False

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._world = world
        self._chosen: dict[tuple[torch.dtype, int], Collective] = {}
        names = candidates(world)
        key = _key(world, names)
        kept = _kept(world, key, names)
        if kept is not None:
            self._inner = _make(world, sorted({name for row in kept.values() for name in row.values()}))
        if kept is None or not self._inner:
            kept = self._measured(names, key)
        self._choices = {
            kind: {size: self._available(name) for size, name in row.items()} for kind, row in kept.items()
        }
        self.asynchronous = any(each.asynchronous for each in self._inner.values())  # type: ignore[misc]
        self.uses = tuple(sorted(self._inner)) if self.size > 1 else ()

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        return self._for(flat).all_reduce_(flat, operation)

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        return self._for(flat).broadcast_(flat, src)

    def all_gather(self, flat: Tensor) -> Tensor:
        return self._for(flat).all_gather(flat)

    def reduce_scatter(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        return self._for(flat).reduce_scatter(flat, operation)

    def reduce_scatter_lent(self, flat: Tensor, out: Tensor, operation: Operation = "sum") -> Tensor:
        return self._for(flat).reduce_scatter_lent(flat, out, operation)

    def allocate(self, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self._pick(dtype, length * dtype.itemsize).allocate(length, dtype, device)

    def start(self, flat: Tensor, operation: Operation = "sum") -> Pending:
        return self._for(flat).start(flat, operation)

    def barrier(self) -> None:
        self._pick(torch.float32, 0).barrier()

    def labelled(self, label: str) -> Collective:
        other = copy.copy(self)
        other._chosen = {}
        other._inner = {name: each.labelled(label) for name, each in self._inner.items()}
        return other

    def close(self) -> None:
        for collective in self._inner.values():
            collective.close()

    def _for(self, flat: Tensor) -> Collective:
        return self._pick(flat.dtype, flat.nbytes)

    def _pick(self, dtype: torch.dtype, nbytes: int) -> Collective:
        found = self._chosen.get((dtype, nbytes))
        if found is None:
            found = self._chosen[dtype, nbytes] = self._inner[choose(self._choices, dtype, nbytes)]
        return found

    def _available(self, name: str) -> str:
        """What could be measured once may be missing now (a full /dev/shm): then the first that is not."""
        return name if name in self._inner else min(self._inner)

    def _measured(self, names: Sequence[str], key: dict[str, Any]) -> Choices:
        """Measure together; rank 0 keeps the table for the next time."""
        world, began = self._world, time.monotonic()
        budget = _budget()
        everything = self._inner = _make(world, names, most=1 if world.size == 1 else None)
        if len(everything) == 1:  # nothing to choose from
            return {kind: dict.fromkeys(sizes, *everything) for kind, sizes in SIZES.items()}
        if world.rank == 0:
            for name, reason in _unavailable(names).items():
                _say(f"goes on without {name}: {reason}")
            _say(f"measuring {', '.join(everything)} for {world.size} ranks, once on this machine …")
        choices, seconds = _Race(world, everything, budget).run()
        used = {name for row in choices.values() for name in row.values()}
        self._inner = {name: each for name, each in everything.items() if name in used}
        for name in sorted(everything.keys() - used):  # in one order on all ranks
            everything[name].close()
        if world.rank == 0:
            _keep(key, choices, seconds)
            _say(f"chose {', '.join(sorted(used))} in {time.monotonic() - began:.1f} s")
        return choices


class _Race:
    """Every candidate at every size, as long as the budget lasts; all ranks decide by the same numbers."""

    def __init__(self, world: World, runners: dict[str, Collective], budget: float) -> None:
        self._world, self._runners, self._budget = world, runners, budget
        self._began = time.perf_counter()

    def run(self) -> tuple[Choices, dict[str, Any]]:
        choices: Choices = {}
        seconds: dict[str, Any] = {}
        room = _MOST_BYTES // self._world.size
        stages = [(kind, size) for kind, sizes in SIZES.items() for size in sizes if size <= room]
        for number, (kind, size) in enumerate(stages):
            found = self._stage(kind, size, len(stages) - number)
            if found is None:
                break
            if found:
                choices.setdefault(kind, {})[size] = fastest(found)
                seconds[f"{kind} {size}"] = found
        return choices, seconds

    def _stage(self, kind: str, size: int, left: int) -> dict[str, float] | None:
        """Seconds of one call by name; None when the budget is used up."""
        dtype = TYPES[kind]
        flat = torch.ones(size // dtype.itemsize, dtype=dtype, device=self._world.device)
        first = {name: self._seconds(runner, flat, 1) for name, runner in self._runners.items()}
        elapsed = time.perf_counter() - self._began
        *times, elapsed = self._slowest([*first.values(), elapsed])
        found = {name: t for name, t in zip(first, times, strict=True) if t < float("inf")}
        if elapsed > self._budget:
            return found if (kind, size) == _FIRST else None
        if not found:
            return {}
        best = min(found.values())
        close = [name for name, t in found.items() if t <= _HOPELESS * best]
        share = (self._budget - elapsed) / left
        repeats = int(share / sum(found[name] for name in close))
        repeats = max(_REPEATS[0], min(_REPEATS[1], repeats))
        again = [self._seconds(self._runners[name], flat, repeats) for name in close]
        return dict(zip(close, self._slowest(again), strict=True))

    def _seconds(self, runner: Collective, flat: Tensor, repeats: int) -> float:
        """The median of some calls after one that lines the ranks up; infinite where the type is refused."""
        found = []
        for _ in range(repeats + 1):
            flat.fill_(1)
            start = time.perf_counter()
            try:
                runner.all_reduce_(flat)
            except (PacelineError, TypeError, RuntimeError, ValueError):
                return float("inf")
            found.append(time.perf_counter() - start)
        return statistics.median(found[1:])

    def _slowest(self, seconds: Iterable[float]) -> list[float]:
        """The largest of all ranks, place by place: the same numbers on every rank."""
        numbers = torch.tensor(list(seconds), dtype=torch.float64, device=self._world.device)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
        self._world.group.allreduce([numbers], options).wait()
        return [float(number) for number in numbers]


def candidates(world: World) -> list[str]:
    """The registry's collectives that may be chosen in such a world."""
    found = []
    for name in COLLECTIVES.names():
        if name == __name__.rpartition(".")[2]:  # itself: being imported, perhaps for the first time
            continue
        kind: type[Collective] = COLLECTIVES.load(name)
        if kind.candidate:
            found.append(name)
    return found


def _make(world: World, names: Sequence[str], most: int | None = None) -> dict[str, Collective]:
    """Those that every rank could construct, the first `most` of them."""
    made: dict[str, Collective] = {}
    for name in names:
        if len(made) == most:
            break
        collective = None
        with contextlib.suppress(PacelineError, ImportError, OSError):
            collective = COLLECTIVES.make(name, world)
        failed = torch.tensor([float(collective is None)], device=world.device)
        world.group.allreduce([failed]).wait()
        if not failed.item() and collective is not None:
            made[name] = collective
        elif collective is not None:
            collective.close()
    return made


def _unavailable(names: Sequence[str]) -> dict[str, str]:
    """Those that this machine cannot have, and why; the other ranks' machines may differ."""
    reasons = {name: COLLECTIVES.load(name).unavailable() for name in names}
    return {name: reason for name, reason in reasons.items() if reason}


def _key(world: World, names: Sequence[str]) -> dict[str, Any]:
    machine = resources.machine()
    return {
        "host": machine["host"],
        "cpu": machine["cpu"],
        "cores": machine["usable_cores"],
        "versions": resources.versions(),
        "ranks": world.size,
        "nodes": world.nodes,
        "device": world.device.type,
        "candidates": list(names),
        "unavailable": sorted(_unavailable(names)),  # one that becomes available is measured
    }


def _kept(world: World, key: dict[str, Any], names: Sequence[str]) -> Choices | None:
    """Rank 0's table, on every rank; None when it has none."""
    text = ""
    if world.rank == 0:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found = decode(path_of(cache_folder(), key).read_text(encoding="utf-8"), key, names)
            text = json.dumps(found) if found else ""
    text = world.agree("auto's table", text)
    return as_choices(json.loads(text)) if text else None


def _keep(key: dict[str, Any], choices: Choices, seconds: dict[str, Any]) -> None:
    """Write the table; a cache that cannot be written costs the next start its time and nothing else."""
    path = path_of(cache_folder(), key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, encode(key, choices, seconds))
    except OSError as error:
        _say(f"cannot keep the table in {path.parent} ({error.strerror}); it will be measured again")


def _budget() -> float:
    text = os.environ.get("PACELINE_AUTO_SECONDS", str(_SECONDS))
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"PACELINE_AUTO_SECONDS={text!r} is not a number of seconds; unset it") from None


def _say(words: str) -> None:
    print(f"auto      {words}", file=sys.stderr, flush=True)
