"""What one rank does in `paceline bench syncbn`: all cases in the same processes, in turns.

    for every cell (features × batch):  first pass of each case, compared with BatchNorm1d on the whole
      for every round, in an order shuffled anew:
        for every case:   rewrite the inputs ─► barrier ─► [ forward, backward × k ] ─► start, end, CPU

The inputs are standard normal, the loss is the sum of the outputs of the first half of the whole batch, so
the gradient that comes back is 1 for those and 0 for the others. The whole batch is split evenly over the
ranks. Ranks read one clock (CLOCK_MONOTONIC). The barrier is the board's, not a collective.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.bench._allreduce_rank import LEAST_ROUNDS, resident
from paceline.bench._board import Board
from paceline.bench._syncbn_rows import OURS, OURS_GLOO, PLAIN_GLOO, SHARE, TORCH, WHOLE
from paceline.comm.measured import Measured
from paceline.comm.world import World, joined
from paceline.data.shard import seat_slice
from paceline.launch.environment import Place
from paceline.metrics.clock import Meter
from paceline.nn import SyncBatchNorm
from paceline.registry import COLLECTIVES

_BLOCK_SECONDS, _TRIALS = 4e-3, 4
_ONCE_LARGE = 6 << 20
"""Floats, given back at once: malloc then keeps small blocks, as in a process that trains a network. Before,
it returns each 128 kB to the kernel, and a pass of 32 × 1,024 takes twice the time of one of 64 × 1,024."""
_OVER = {OURS: "shm", OURS_GLOO: "native"}


@dataclass(frozen=True)
class Grid:
    """What the ranks of one world measure."""

    cells: Sequence[tuple[int, int]]  # features, batch
    seconds: float  # of measuring a cell
    rounds: int  # at most
    passes: int  # at most, in a block
    deadline: float


@dataclass
class Cell:
    """One cell, as one rank saw it. Samples: (start, end, seconds in forward, CPU seconds), one a round."""

    features: int
    batch: int
    passes: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    messages: dict[str, list[int]] = field(default_factory=dict)


class PlainSync(torch.autograd.Function):
    """The same mathematics as anybody would write it: sums joined into one tensor, one all-reduce a pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: nn.BatchNorm1d) -> Tensor:
        assert norm.running_mean is not None and norm.running_var is not None and norm.momentum is not None
        count = torch.full((1,), float(len(x)))
        message = torch.cat([x.sum(0), x.square().sum(0), count])
        dist.all_reduce(message)
        mean, square = (message[:-1] / message[-1]).view(2, -1)
        variance = square - mean * mean
        inverse = torch.rsqrt(variance + norm.eps)
        unbiased = variance * message[-1] / (message[-1] - 1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(unbiased, norm.momentum)
        y: Tensor = (x - mean) * inverse
        ctx.save_for_backward(y, inverse, message[-1])
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        y, inverse, count = ctx.saved_tensors
        message = torch.cat([dy.sum(0), (dy * y).sum(0)])
        dist.all_reduce(message)
        first, second = (message / count).view(2, -1)
        return (dy - first - y * second) * inverse, None


class Plain(nn.Module):
    """PlainSync with the state of a BatchNorm1d."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(features, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = PlainSync.apply(x, self.norm)
        return y


def run_rank(grid: Grid, board: Board, folder: Path, place: Place) -> None:
    """Measure the whole grid; leaves `<rank>.json` in the folder."""
    torch.set_num_threads(1)
    torch.empty(_ONCE_LARGE)
    board.sit(place.rank)
    with joined(place, grid.deadline) as world:
        made = {label: COLLECTIVES.make(name, world) for label, name in _over(world).items()}
        cells = []
        for number, (features, batch) in enumerate(grid.cells):
            board.tell(number / len(grid.cells))
            cells.append(asdict(_Bench(world, board, made, Cell(features, batch), grid).measure()))
        board.wait()
        for collective in made.values():
            collective.close()
        (folder / f"{place.rank}.json").write_text(json.dumps({"cells": cells}))


def _over(world: World) -> dict[str, str]:
    """The collectives that take tensors of this world's device."""
    return {label: name for label, name in _OVER.items() if label == OURS_GLOO or world.device.type == "cpu"}


def layers(features: int, made: dict[str, Any], device: torch.device) -> dict[str, nn.Module]:
    """One layer a case; torch's own where there is a GPU."""
    found: dict[str, nn.Module] = {
        WHOLE: nn.BatchNorm1d(features, affine=False),
        SHARE: nn.BatchNorm1d(features, affine=False),
        PLAIN_GLOO: Plain(features),
    }
    for label, collective in made.items():
        found[label] = SyncBatchNorm(features, affine=False, process_group=collective)
    if device.type == "cuda":
        found[TORCH] = nn.SyncBatchNorm(features, affine=False)
    return {label: layer.to(device) for label, layer in found.items()}


class _Bench:
    """One cell in one world."""

    def __init__(self, world: World, board: Board, made: dict[str, Any], cell: Cell, grid: Grid) -> None:
        self._world, self._board, self._cell, self._grid = world, board, cell, grid
        self._meter = Meter()
        counted = {label: Measured(collective, self._meter) for label, collective in made.items()}
        self._layers = layers(cell.features, counted, world.device)
        if world.rank:
            self._layers.pop(WHOLE)
        generator = torch.Generator().manual_seed(cell.features + cell.batch)
        self._whole = torch.randn(cell.batch, cell.features, generator=generator).to(world.device)
        self._half = torch.zeros_like(self._whole)
        self._half[: cell.batch // 2] = 1
        self._mine = seat_slice(cell.batch, world.rank, world.size)

    def _inputs(self, label: str, shift: float = 0.0) -> tuple[Tensor, Tensor]:
        rows = slice(None) if label == WHOLE else self._mine
        return (self._whole[rows] + shift).requires_grad_(), self._half[rows].clone()

    def measure(self) -> Cell:
        labels = [WHOLE, *(label for label in self._layers if label != WHOLE)]  # the same on every rank
        for label in labels:
            self._first(label)
            self._cell.passes[label] = self._passes_of_block(label)
        began = time.perf_counter()
        self._round(labels, -1)
        self._cell.samples.clear()
        trial = self._board.share(time.perf_counter() - began)[0]  # rank 0's, on every rank
        for number in range(min(self._grid.rounds, max(LEAST_ROUNDS, int(self._grid.seconds / trial)))):
            self._round(labels, number)
        return self._cell

    def _first(self, label: str) -> None:
        """Right? One message a pass? How much is kept for backward?"""
        if label in self._layers and label != SHARE:
            x, dy = self._inputs(label)
            kept: dict[int, int] = {}

            def pack(tensor: Tensor) -> Tensor:
                kept[tensor.data_ptr()] = tensor.nbytes
                return tensor

            before = self._meter.calls
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                y = self._layers[label](x)
            between = self._meter.calls
            y.backward(dy)
            self._cell.kept[label] = sum(kept.values())
            if label in _OVER:
                self._cell.messages[label] = [between - before, self._meter.calls - between]
            self._cell.error[label] = self._error(label, x, y)
        self._board.wait()

    def _error(self, label: str, x: Tensor, y: Tensor) -> float:
        """The largest distance from BatchNorm1d on the whole batch: output, gradient, running statistics."""
        norm = nn.BatchNorm1d(self._cell.features, affine=False).to(x.device)
        whole = self._whole.clone().requires_grad_()
        wanted = norm(whole)
        wanted.backward(self._half)
        rows = slice(None) if label == WHOLE else self._mine
        assert x.grad is not None and whole.grad is not None
        pairs = [(y, wanted[rows]), (x.grad, whole.grad[rows])]
        pairs += [
            (mine, want)
            for mine, want in zip(self._layers[label].buffers(), norm.buffers(), strict=True)
            if mine.is_floating_point()
        ]
        return max(float((a.detach() - b.detach()).abs().max()) for a, b in pairs if a.numel())

    def _passes_of_block(self, label: str) -> int:
        """As many as fit, by the quickest of some passes: one may meet a core that others use."""
        quickest = _BLOCK_SECONDS
        for _ in range(_TRIALS):
            self._board.wait()
            seconds = 0.0
            if label in self._layers:
                start, end, *_ = self._block(label, 1)
                seconds = end - start
            quickest = min(quickest, max(self._board.share(seconds)))
        return max(1, min(self._grid.passes, int(_BLOCK_SECONDS / quickest)))

    def _round(self, labels: Sequence[str], number: int) -> None:
        order = list(labels)
        random.Random(f"{self._cell.features} {self._cell.batch} {number}").shuffle(order)
        for label in order:
            if label in self._layers:
                sample = self._block(label, self._cell.passes[label], 1e-3 * number)
                self._cell.samples.setdefault(label, []).append(sample)

    def _block(self, label: str, passes: int, shift: float = 0.0) -> tuple[float, float, float, float]:
        layer = self._layers[label]
        x, dy = self._inputs(label, shift)
        settle: Callable[[], object] = torch.cuda.synchronize if x.is_cuda else (lambda: None)
        settle()
        if label != WHOLE:  # which rank 0 does alone
            self._board.wait()
        forward, cpu, start = 0.0, time.process_time(), time.perf_counter()
        for _ in range(passes):
            began = time.perf_counter()
            y = layer(x)
            forward += time.perf_counter() - began
            y.backward(dy)
            x.grad = None
        settle()
        return start, time.perf_counter(), forward, time.process_time() - cpu


def memory_rank(label: str, grid: Grid, board: Board, folder: Path, place: Place) -> None:
    """Peak memory of one case, in a world of its own: bytes beyond the input, for every cell in turn."""
    torch.set_num_threads(1)
    torch.empty(_ONCE_LARGE)
    board.sit(place.rank)
    peaks = []
    with joined(place, grid.deadline) as world:
        warm = torch.ones(1, requires_grad=True)
        dist.all_reduce(warm.detach())  # gloo's own threads and buffers are everybody's
        (warm * 2).sum().backward()  # autograd's too
        made = {label: COLLECTIVES.make(_OVER[label], world)} if label in _OVER else {}
        if label != WHOLE or world.rank == 0:  # what the first pass of all loads is not this cell's
            layers(8, made, world.device)[label](torch.randn(8, 8, requires_grad=True)).sum().backward()
        for features, batch in sorted(grid.cells, key=lambda cell: cell[0] * cell[1]):
            mine = slice(None) if label == WHOLE else seat_slice(batch, world.rank, world.size)
            x = torch.randn(batch, features)[mine].clone().requires_grad_()
            before = resident("VmRSS")
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")
            if label != WHOLE or world.rank == 0:
                layer = layers(features, made, world.device)[label]
                for _ in range(3):
                    layer(x).sum().backward()
            board.wait()
            peaks.append([features, batch, max(0, resident("VmHWM") - before)])
        for collective in made.values():
            collective.close()
    (folder / f"{place.rank}.json").write_text(json.dumps(peaks))
