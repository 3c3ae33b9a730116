"""Compares what the ranks call, before any of them starts: a decorator of any collective.

    rank 0   broadcast #41 ─┐                               ┌─▶ RanksDisagree: rank 2 is at sum #41, …
    rank 1   broadcast #41 ─┼─ all_gather of six numbers ───┼─▶ RanksDisagree: the same line
    rank 2   sum #41       ─┘  over the collective itself   └─▶ RanksDisagree: the same line

Every rank makes the same exchange before call number n, whatever that call is, so ranks that are about to do
different things still meet. Closing counts as a call: a rank that makes fewer than the others is named too.

Cost: one all_gather of 48 bytes a call (docs/concepts/collectives.md has times), in the first calls of a
group, and about a microsecond afterwards. PACELINE_CHECK=1 checks every call, 0 none; below pytest every call
is checked. A collective that compares calls by itself (shm) is not decorated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from paceline.comm.calls import Call, difference, dtype_number, label_number
from paceline.comm.collectives import Collective, Operation, Pending
from paceline.comm.world import World
from paceline.errors import ConfigError, PacelineError, RankFailed, RanksDisagree

FIRST_CALLS = 100
"""How many calls of a group are compared by default: some steps of training, whatever its buckets are."""
_ALWAYS = 2**62

Result = TypeVar("Result")


def checked(inner: Collective, world: World) -> Collective:
    """The collective with its calls compared, as far as that is wanted; rank 0's wish counts for all."""
    if inner.compares_calls or world.size == 1:
        return inner
    calls = int(world.agree("checked calls", str(_calls_to_check())))
    return Checked(inner, world.device, State(calls)) if calls else inner


@dataclass
class State:
    """What a collective and its labelled forms share."""

    checked_calls: int
    number: int = 0
    disagreement: str = ""
    failed: bool = False
    closed: bool = False


class Checked(Collective):
    """A collective that does what another does when all ranks ask the same of it."""

    def __init__(self, inner: Collective, device: torch.device, state: State, label: int = 0) -> None:
        self.rank = inner.rank
        self.size = inner.size
        self.uses = inner.uses
        self.asynchronous = inner.asynchronous  # type: ignore[misc]  # a decorator is what it decorates
        self._inner = inner
        self._device = device
        self._state = state
        self._label = label

    def all_reduce_(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        return self._run("all_reduce", lambda: self._inner.all_reduce_(flat, operation), flat, operation)

    def broadcast_(self, flat: Tensor, src: int = 0) -> Tensor:
        return self._run("broadcast", lambda: self._inner.broadcast_(flat, src), flat, root=src)

    def all_gather(self, flat: Tensor) -> Tensor:
        return self._run("all_gather", lambda: self._inner.all_gather(flat), flat)

    def reduce_scatter(self, flat: Tensor, operation: Operation = "sum") -> Tensor:
        return self._run(
            "reduce_scatter", lambda: self._inner.reduce_scatter(flat, operation), flat, operation
        )

    def reduce_scatter_lent(self, flat: Tensor, out: Tensor, operation: Operation = "sum") -> Tensor:
        return self._run(
            "reduce_scatter", lambda: self._inner.reduce_scatter_lent(flat, out, operation), flat, operation
        )

    def barrier(self) -> None:
        self._run("barrier", self._inner.barrier)

    def allocate(self, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        like = torch.empty(length, dtype=dtype, device="meta")
        return self._run("allocate", lambda: self._inner.allocate(length, dtype, device), like)

    def start(self, flat: Tensor, operation: Operation = "sum") -> Pending:
        return self._run("all_reduce", lambda: self._inner.start(flat, operation), flat, operation)

    def labelled(self, label: str) -> Collective:
        return Checked(self._inner.labelled(label), self._device, self._state, label_number(label))

    def close(self) -> None:
        """A rank that closes because of an error waits for nobody; nobody minds others that have gone."""
        state = self._state
        orderly = not (state.closed or state.failed) and sys.exc_info()[0] is None
        state.closed = True
        try:
            if orderly:
                self._compared_at_closing()
        finally:
            self._inner.close()

    def _compared_at_closing(self) -> None:
        try:
            self._run("close", lambda: None)
        except RanksDisagree:
            raise
        except (PacelineError, RuntimeError):
            pass  # they ended without closing: there is nothing left to disagree about

    def _run(
        self,
        kind: str,
        function: Callable[[], Result],
        flat: Tensor | None = None,
        operation: Operation = "sum",
        root: int = 0,
    ) -> Result:
        """Compare if that is still due, then do it; what fails says in which call."""
        state = self._state
        if state.disagreement:
            raise RanksDisagree(state.disagreement)
        state.number += 1
        try:
            if state.number <= state.checked_calls:
                self._compare(self._call(kind, flat, operation, root))
            return function()
        except RankFailed as error:
            state.failed = True
            if "#" in error.reason:  # it says so itself
                raise
            call = self._call(kind, flat, operation, root)
            raise RankFailed(error.rank, f"{error.reason}, in {call}", error.details) from error
        except BaseException as error:
            state.failed = True
            if not isinstance(error, PacelineError):
                error.add_note(f"in {self._call(kind, flat, operation, root)}")
            raise

    def _call(self, kind: str, flat: Tensor | None, operation: Operation, root: int) -> Call:
        number, label = self._state.number, self._label
        if flat is None:
            return Call(number, kind, label=label)
        dtype = dtype_number(flat.dtype)
        size = flat.numel() if dtype >= 0 else flat.nbytes
        return Call(number, kind, size, dtype, operation, root, label)

    def _compare(self, call: Call) -> None:
        mine = torch.tensor(call.encode(), device=self._device)
        rows = self._inner.all_gather(mine).tolist()
        if any(row != rows[0] for row in rows):
            line = difference([Call.decode(row) for row in rows])
            self._state.disagreement = str(line)
            raise RanksDisagree(self._state.disagreement)


def _calls_to_check() -> int:
    wish = os.environ.get("PACELINE_CHECK", "")
    if wish not in ("", "0", "1"):
        raise ConfigError(
            f"PACELINE_CHECK={wish!r}: 1 compares every call, 0 none; unset it for the first calls of a group"
        )
    if wish:
        return _ALWAYS if wish == "1" else 0
    return _ALWAYS if "PYTEST_VERSION" in os.environ else FIRST_CALLS
