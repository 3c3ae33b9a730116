"""Counts and times any collective, so that none of them does it itself.

One clock read before and one after; about 1 µs a call. Nothing is communicated to measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from paceline.comm.collectives import Collective, Operation, Pending
from paceline.metrics.clock import Meter


class Measured(Collective):
    """A collective that does what another does and tells a Meter."""

    def __init__(self, inner: Collective, meter: Meter) -> None:
        self.rank = inner.rank
        self.size = inner.size
        self._inner = inner
        self._meter = meter
        self.asynchronous = inner.asynchronous  # type: ignore[misc]  # a decorator is what it decorates

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        arrived = time.monotonic()
        self._inner.all_reduce_(flat, operation)
        self._meter.add(arrived, time.monotonic(), flat.nbytes)
        return flat

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        arrived = time.monotonic()
        self._inner.broadcast_(flat, src)
        self._meter.add(arrived, time.monotonic(), flat.nbytes)
        return flat

    def all_gather(self, flat: Tensor) -> Tensor:
        arrived = time.monotonic()
        rows = self._inner.all_gather(flat)
        self._meter.add(arrived, time.monotonic(), flat.nbytes)
        return rows

    def reduce_scatter(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        arrived = time.monotonic()
        part = self._inner.reduce_scatter(flat, operation)
        self._meter.add(arrived, time.monotonic(), flat.nbytes)
        return part

    def reduce_scatter_lent(self, flat: Tensor, out: Tensor, operation: Operation = "sum") -> Tensor:
        arrived = time.monotonic()
        self._inner.reduce_scatter_lent(flat, out, operation)
        self._meter.add(arrived, time.monotonic(), flat.nbytes)
        return out

    def barrier(self) -> None:
        arrived = time.monotonic()
        self._inner.barrier()
        self._meter.add(arrived, time.monotonic(), 0)

    def allocate(self, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self._inner.allocate(length, dtype, device)

    def start(self, flat: Tensor, operation: Operation = "sum") -> Pending:
        started = time.monotonic()
        pending = self._inner.start(flat, operation)
        return _Waited(pending, self._meter, started, flat.nbytes)

    def labelled(self, label: str) -> Collective:
        return Measured(self._inner.labelled(label), self._meter)

    def decorated(self, by: Callable[[Collective], Collective]) -> Collective:
        return Measured(self._inner.decorated(by), self._meter)

    def regroup(self, ranks: Sequence[int]) -> None:
        self._inner.regroup(ranks)
        self.rank, self.size = self._inner.rank, self._inner.size

    def close(self) -> None:
        self._inner.close()


class _Waited:
    """Counted once, when it is waited for; exposed are the seconds of starting and of waiting alone."""

    def __init__(self, pending: Pending, meter: Meter, started: float, nbytes: int) -> None:
        self._pending = pending
        self._meter = meter
        self._nbytes = nbytes
        meter.expose(started, time.monotonic())

    def wait(self) -> None:
        arrived = time.monotonic()
        self._pending.wait()
        self._meter.add(arrived, time.monotonic(), self._nbytes)
