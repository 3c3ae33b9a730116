"""Background: any collective made asynchronous, by a thread that does the calls of one rank one by one.

    training thread    start(a) ─┐  start(b) ─┐          a.wait() …
    queue                        └──▶ a ──▶ b └──▶              (in the order in which they were put)
    engine thread                    all_reduce_(a)  all_reduce_(b)

Blocking calls go through the same queue, so the collective below is only ever used by one thread. The first
call that fails ends the engine: its error is raised by its own wait and by every later one, because the
ranks are no longer in step. Cost: two thread switches a call, and the engine's copying and summing takes time
of the cores that training computes on (docs/decisions/0011-overlap.md).
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from paceline.comm.collectives import Collective, Operation, Pending
from paceline.errors import PacelineError

Result = TypeVar("Result")
_FAILING = 0.5  # seconds for what is queued, where this rank fails anyway


class Background(Collective):
    """A collective whose `start` returns at once. Closing it ends the thread; the inner one stays open."""

    asynchronous: ClassVar[bool] = True

    def __init__(self, inner: Collective, *, deadline: float = 60.0, engine: _Engine | None = None) -> None:
        self.rank = inner.rank
        self.size = inner.size
        self._inner = inner
        self._engine = engine or _Engine(deadline)

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        return self._engine.call(lambda: self._inner.all_reduce_(flat, operation))

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        return self._engine.call(lambda: self._inner.broadcast_(flat, src))

    def all_gather(self, flat: Tensor) -> Tensor:
        return self._engine.call(lambda: self._inner.all_gather(flat))

    def reduce_scatter(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        return self._engine.call(lambda: self._inner.reduce_scatter(flat, operation))

    def reduce_scatter_lent(self, flat: Tensor, out: Tensor, operation: Operation = "sum") -> Tensor:
        return self._engine.call(lambda: self._inner.reduce_scatter_lent(flat, out, operation))

    def barrier(self) -> None:
        self._engine.call(self._inner.barrier)

    def allocate(self, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self._engine.call(lambda: self._inner.allocate(length, dtype, device))

    def start(self, flat: Tensor, operation: Operation = "sum") -> Pending:
        def reduce() -> None:  # no result: it would keep the tensor for as long as the Pending lives
            self._inner.all_reduce_(flat, operation)

        return self._engine.put(reduce)

    def labelled(self, label: str) -> Collective:
        return Background(self._inner.labelled(label), engine=self._engine)

    def close(self) -> None:
        self._engine.close()


class _Order:
    """One call on its way: `done` is set when it has a result or an error."""

    def __init__(self, function: Callable[[], object], engine: _Engine) -> None:
        self.function: Callable[[], object] | None = function
        self.result: object = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._engine = engine

    def wait(self) -> None:
        """Returns when the call is done; raises its error, or that of the call that ended the engine."""
        self._engine.wait_for(self)
        if self.error is not None:
            raise self.error


class _Engine:
    """One thread and its queue."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._finished = 0
        self._closed = False
        self._broken: BaseException | None = None
        self._lock = threading.Lock()  # between putting an order and the engine's last look at the queue
        self._thread = threading.Thread(target=self._serve, name="paceline-collective", daemon=True)
        self._thread.start()

    def put(self, function: Callable[[], object]) -> _Order:
        """Queue a call."""
        order = _Order(function, self)
        with self._lock:
            if self._broken is not None:
                raise PacelineError(f"an earlier collective failed: {self._broken}") from self._broken
            if self._closed:
                raise PacelineError("bug: a collective was called after its background thread was closed")
            self._orders.put(order)
        return order

    def call(self, function: Callable[[], Result]) -> Result:
        """Queue a call and wait for its result."""
        order = self.put(function)
        order.wait()
        return order.result  # type: ignore[return-value]  # what function returned

    def wait_for(self, order: _Order) -> None:
        """Each call has the deadline, counted from the end of the one before it."""
        finished = self._finished
        while not order.done.wait(self._deadline):
            if self._finished == finished and not order.done.is_set():
                raise PacelineError(
                    f"a collective in the background did not end within {self._deadline:g} s; "
                    "another rank is slower than that, or stopped (raise --deadline if it is slower)"
                )
            finished = self._finished

    def close(self) -> None:
        """Finish what is queued, then end the thread. Closing twice is harmless.

        A rank that closes because of an error does not wait for others: they are to hear of the error."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._orders.put(None)
        self._thread.join(self._deadline if sys.exc_info()[0] is None else min(self._deadline, _FAILING))

    def _serve(self) -> None:
        torch.set_grad_enabled(False)  # a new thread begins with it on
        while (order := self._orders.get()) is not None:
            try:
                assert order.function is not None
                order.result = order.function()
            except BaseException as error:  # whatever it was, somebody waits for it
                self._die(order, error)
                return
            order.function = None  # it holds the tensor
            self._finished += 1
            order.done.set()
            del order  # or the last tensor would live until the next call

    def _die(self, order: _Order, error: BaseException) -> None:
        """Give the error to its order, and one that names it to all that are queued behind."""
        with self._lock:
            self._broken = error
        order.error = error
        order.done.set()
        while not self._orders.empty():
            behind = self._orders.get()
            if behind is not None:
                behind.error = PacelineError(f"an earlier collective failed: {error}")
                behind.error.__cause__ = error
                behind.done.set()
