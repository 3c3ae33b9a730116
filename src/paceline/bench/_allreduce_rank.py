"""What one rank does in `paceline bench allreduce`: all collectives in the same processes, in turns.

    for every size:  first call, checked (float64, bits) ─► one counted ─► some timed: how long is one?
      for every round, in an order shuffled anew:
        for every collective:   rewrite the tensors ─► barrier ─► [ call × k ] ─► start, end, CPU seconds

A block is k calls on k tensors that were rewritten for it, k as large as fits 2 ms and --calls: a call of
3 µs cannot be timed alone. Ranks read one clock (CLOCK_MONOTONIC), so the time of a block is from the moment
the last rank has begun to the moment the last one is done, whatever the skew of the barrier before it.

The barrier is semaphores in memory, not a collective: at 32 ranks gloo's takes longer than what is measured.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.bench._allreduce_cases import Case
from paceline.bench._allreduce_rows import COPY
from paceline.bench._allreduce_sent import counting
from paceline.bench._board import Board
from paceline.comm.collectives import Collective
from paceline.comm.world import World, joined
from paceline.errors import PacelineError
from paceline.launch.environment import Place
from paceline.registry import COLLECTIVES

LEAST_ROUNDS = 7  # six values are the fewest that give a 95 % interval
_BLOCK_SECONDS = 2e-3
_TRIALS, _TRIAL_SECONDS = 5, 20e-3
_BLOCK_BYTES = 1 << 18  # of the tensors of a block: they stay in the second-level cache
_COPYING = 2  # ranks that copy at once


@dataclass(frozen=True)
class Grid:
    """What the ranks of one world measure."""

    cases: Sequence[Case]
    sizes: Sequence[int]
    seconds: float  # of measuring a size
    rounds: int  # at most
    calls: int  # at most, in a block
    deadline: float


@dataclass
class Cell:
    """One size, as one rank saw it. Samples are (start, end, CPU seconds) of a block, one a round."""

    elements: int
    calls: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    same_bits: dict[str, bool] = field(default_factory=dict)
    messages: dict[str, int | None] = field(default_factory=dict)  # that this rank sends in one call
    bytes_sent: dict[str, int | None] = field(default_factory=dict)


def run_rank(grid: Grid, board: Board, folder: Path, place: Place) -> None:
    """Measure the whole grid; leaves `<rank>.json` in the folder."""
    torch.set_num_threads(1)
    board.sit(place.rank)
    with joined(place, grid.deadline) as world:
        made, skipped = make(grid.cases, world, board)
        cells = []
        for number, size in enumerate(grid.sizes):
            board.tell(number / len(grid.sizes))
            cells.append(asdict(_Bench(world, board, made, size, grid.calls).measure(grid)))
        board.wait()
        for collective, _ in made.values():
            collective.close()
        (folder / f"{place.rank}.json").write_text(json.dumps({"cells": cells, "skipped": skipped}))


def make(
    cases: Sequence[Case], world: World, board: Board
) -> tuple[dict[str, tuple[Collective, Case]], dict[str, str]]:
    """The collectives that all ranks could construct, and why the others could not be."""
    made, skipped = {}, {}
    for case in cases:
        reason = ""
        try:
            collective = COLLECTIVES.make(case.name, world, options=case.options)
        except (PacelineError, ImportError, OSError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
        if any(board.share(float(bool(reason)))):
            skipped[case.label] = reason or "another rank could not construct it"
        else:
            made[case.label] = (collective, case)
    return made, skipped


class _Bench:
    """One size in one world."""

    def __init__(
        self,
        world: World,
        board: Board,
        made: Mapping[str, tuple[Collective, Case]],
        elements: int,
        most_calls: int,
    ) -> None:
        self._world, self._board = world, board
        self._base = _values(world.rank, elements)
        self._cell = Cell(elements)
        room = max(1, min(most_calls, _BLOCK_BYTES // max(4 * elements, 1)))
        self._plain = [torch.empty(elements) for _ in range(room)]
        self._tensors: dict[str, list[Tensor]] = {}
        self._calls: dict[str, Callable[[Tensor], object]] = {}
        self._collectives: dict[str, Collective] = {}
        for label, (collective, case) in made.items():
            self._calls[label] = collective.all_reduce_
            self._collectives[label] = collective
            self._tensors[label] = self._plain
            if case.zero_copy:
                device = torch.device("cpu")
                self._tensors[label] = [
                    collective.allocate(elements, torch.float32, device) for _ in range(room)
                ]

    def measure(self, grid: Grid) -> Cell:
        wanted = self._mean() if self._world.rank == 0 else None
        for label in self._calls:
            self._first_call(label, wanted)
            self._counted_call(label)
            self._cell.calls[label] = self._calls_of_block(label)
        self._prepare_copy()
        began = time.perf_counter()
        self._round(-1)
        for samples in self._cell.samples.values():
            samples.clear()
        trial = self._board.share(time.perf_counter() - began)[0]  # rank 0's, on every rank
        rounds = min(grid.rounds, max(LEAST_ROUNDS, int(grid.seconds / trial)))
        for number in range(rounds):
            self._round(number)
        return self._cell

    def _first_call(self, label: str, wanted: Tensor | None) -> None:
        """Is the result right, and the same on every rank?"""
        x = self._tensors[label][0]
        x.copy_(self._base)
        self._board.wait()
        self._calls[label](x)
        sums = self._board.share(float(zlib.crc32(memoryview(x.numpy()).cast("B"))))  # type: ignore[arg-type]
        self._cell.same_bits[label] = len(set(sums)) == 1
        if wanted is not None:
            error = (x.double() / self._world.size - wanted).abs()
            self._cell.error[label] = float(error.max()) if len(error) else 0.0

    def _counted_call(self, label: str) -> None:
        """Messages and bytes; counted apart, because counting takes time."""
        self._board.wait()
        with counting(self._collectives[label]) as sent:
            self._calls[label](self._tensors[label][0].copy_(self._base))
            self._board.wait()
        self._cell.messages[label], self._cell.bytes_sent[label] = sent.messages, sent.bytes

    def _calls_of_block(self, label: str) -> int:
        """As many as fit, by the quickest of some calls: one may meet a core that others use."""
        x = self._tensors[label][0]
        quickest = spent = 0.0
        for trial in range(_TRIALS):
            x.copy_(self._base)
            self._board.wait()
            began = time.perf_counter()
            self._calls[label](x)
            slowest = max(self._board.share(time.perf_counter() - began))
            quickest = min(slowest, quickest) if trial else slowest
            spent += slowest  # the same number on every rank
            if spent > _TRIAL_SECONDS:
                break
        return max(1, min(len(self._tensors[label]), int(_BLOCK_SECONDS / quickest)))

    def _prepare_copy(self) -> None:
        """Two ranks copying tensors of this size at once: what memory gives."""
        if self._world.size < _COPYING:
            return
        source, target = self._base.clone(), torch.empty_like(self._base)
        began = time.perf_counter()
        target.copy_(source)
        seconds = max(self._board.share(time.perf_counter() - began))
        repeats = max(1, min(1000, int(_BLOCK_SECONDS / seconds)))
        self._cell.calls[COPY] = repeats
        self._tensors[COPY] = [target] * repeats
        mine = self._world.rank < _COPYING
        self._calls[COPY] = (lambda x: x.copy_(source)) if mine else (lambda x: None)

    def _round(self, number: int) -> None:
        labels = list(self._calls)
        random.Random(f"{self._cell.elements} {number}").shuffle(labels)
        for label in labels:
            tensors = self._tensors[label][: self._cell.calls[label]]
            for place, x in enumerate(tensors if label != COPY else ()):
                torch.add(self._base, 1e-3 * (number + place % 8), out=x)  # other numbers in every block
            self._board.wait()
            self._cell.samples.setdefault(label, []).append(_timed(self._calls[label], tensors))

    def _mean(self) -> Tensor:
        """In float64, from every rank's values."""
        total = torch.zeros(self._cell.elements, dtype=torch.float64)
        for rank in range(self._world.size):
            total += _values(rank, self._cell.elements)
        return total / self._world.size


def _timed(call: Callable[[Tensor], object], tensors: Sequence[Tensor]) -> tuple[float, float, float]:
    cpu = time.process_time()
    start = time.perf_counter()
    for x in tensors:
        call(x)
    end = time.perf_counter()
    return start, end, time.process_time() - cpu


def _values(rank: int, elements: int) -> Tensor:
    return torch.randn(elements, generator=torch.Generator().manual_seed(1000 + rank))


def memory_rank(case: Case, grid: Grid, board: Board, folder: Path, place: Place) -> None:
    """Peak memory of one collective, in a world of its own: bytes beyond the tensors, for every size in turn.

    Counted from before the collective is constructed, so its buffers count once they are touched."""
    torch.set_num_threads(1)
    board.sit(place.rank)
    with joined(place, grid.deadline) as world:
        largest = torch.ones(1 if case.zero_copy else max(grid.sizes))
        warm = torch.ones(1)
        world.group.allreduce([warm]).wait()  # gloo's own threads and buffers are everybody's
        before = resident("VmRSS")
        with contextlib.suppress(OSError):  # from here on the peak is this collective's
            Path("/proc/self/clear_refs").write_text("5")
        made, _ = make([case], world, board)
        peaks: dict[int, int] = {}
        for size in sorted(grid.sizes) if made else ():
            collective = made[case.label][0]
            x = collective.allocate(size, torch.float32, largest.device) if case.zero_copy else largest[:size]
            for _ in range(2):
                collective.all_reduce_(x.fill_(1.0))
            board.wait()
            peaks[size] = max(0, resident("VmHWM") - before - case.zero_copy * x.nbytes)
        for collective, _ in made.values():
            collective.close()
        (folder / f"{place.rank}.json").write_text(json.dumps(peaks))


def resident(name: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS now, VmHWM at its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def read(folder: Path, ranks: int) -> list[Any]:
    """What each rank left."""
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
