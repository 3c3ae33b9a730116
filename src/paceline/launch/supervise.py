"""Watch the ranks, end them all when one fails or the user says so, and tell the cause.

    running ──a rank fails──► settling ──► INT ──grace──► TERM ──► KILL
       │                      0.3 s after an own failure, 1 s after mere consequences (failure.py)
       ├──SIGINT, SIGTERM, SIGHUP──► INT (with grace) … and on a second one KILL at once
       ├──deadline passed──────────► INT …
       ├──a rank that may be lost dies by itself──► noted; the others go on
       └──all returned ──► done

INT raises KeyboardInterrupt in a rank, so its `finally` blocks run; TERM ends one that waits inside native
code; KILL also ends one that is stopped or ignores the others. Each rank leads a process group, so what it
started goes with it. From the first failure to the end: at most 1 + 2 + 1.5 seconds, and 0.5 to reap.
Cost while all is well: one wake-up per second.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.errors import RankFailed
from paceline.launch.failure import OWN, TESTIMONY, Failure, cause, explained, late, outcome
from paceline.launch.signals import Signals

GRACE = 2.0
RETURNED = b"returned\n"
"""What a rank says when its function has returned."""

_SETTLE = 0.3
_SETTLE_CONSEQUENCE = 1.0  # the rank that explains it is still tearing down
_TERM_TO_KILL = 1.5
_KILL_TO_LOST = 0.5  # a killed process that waits for a disk may take its time; nobody waits for it
_WAKE = 1.0  # look even if a SIGCHLD was lost (a library may take its handler over)
_LOST = 0  # the rung after KILL: stop waiting


@dataclass
class Child:
    """A forked rank: its process, and a nameless file in memory into which it says how it ends."""

    rank: int
    pid: int
    said_fd: int
    gone: bool = False

    def send(self, number: int) -> None:
        """To the rank and to everything that it started."""
        if not self.gone:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def ended(self) -> os.waitid_result | None:
        """How it ended. It is not reaped: its number stays taken while its group is swept."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def said(self) -> bytes:
        """Everything that the rank said."""
        return Path(f"/proc/self/fd/{self.said_fd}").read_bytes()

    def remove(self) -> None:
        """Kill it and what it left behind, if any of it is alive; let its number and its file go."""
        if self.gone:
            return
        self.send(signal.SIGKILL)
        give_up = time.monotonic() + _KILL_TO_LOST
        with suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0) and time.monotonic() < give_up:
                time.sleep(0.01)
        os.close(self.said_fd)
        self.gone = True


class Watch:
    """Supervises the ranks of one start."""

    def __init__(
        self,
        children: Sequence[Child],
        signals: Signals,
        *,
        grace: float,
        deadline: float | None,
        tick: Callable[[], None] | None = None,
        may_lose: Collection[int] = (),
    ) -> None:
        self._may_lose = frozenset(may_lose)
        self.lost: list[Failure] = []
        """Bad ends of ranks that may be lost: they end nobody else."""
        self._alive = {child.rank: child for child in children}
        self._signals = signals
        self._grace = grace
        self._tick = tick or (lambda: None)
        self._limit = deadline
        self._deadline = float("inf") if deadline is None else time.monotonic() + deadline
        self._ladder: deque[tuple[float, int]] = deque()  # (when, which signal) still to be sent
        self._stopped_at = float("inf")  # when the first of them was sent: what follows may be our own doing
        self._failures: list[Failure] = []
        self._returned: list[int] = []
        self._interrupted_by = 0

    def run(self) -> list[RankFailed]:
        """Returns when every rank has returned or was lost, and what became of those that were; else ends
        them and raises what the launcher should raise."""
        while self._alive:
            for number in self._signals.wait(self._next() - time.monotonic()):
                self._interrupt(number)
            self._tick()
            self._collect()
            if not self._climb():
                break
        self._finish()
        return [RankFailed(failure.rank, failure.reason, failure.details) for failure in self.lost]

    def _next(self) -> float:
        """The time at which something is to be done, should nothing happen before."""
        rung = self._ladder[0][0] if self._ladder else self._deadline
        return min(rung, time.monotonic() + _WAKE)

    def _interrupt(self, number: int) -> None:
        """The user's signal: stop the ranks with grace; if they are being stopped already, at once."""
        now = time.monotonic()
        if self._ladder:
            self._kill(now)
        else:
            self._stop(now)
        if not self._failures:
            self._interrupted_by = self._interrupted_by or number

    def _stop(self, first: float) -> None:
        term = first + self._grace
        self._kill(term + _TERM_TO_KILL)
        self._ladder.extendleft([(term, signal.SIGTERM), (first, signal.SIGINT)])

    def _kill(self, when: float) -> None:
        self._ladder = deque([(when, signal.SIGKILL), (when + _KILL_TO_LOST, _LOST)])

    def _climb(self) -> bool:
        """Send what is due; False when even KILL did not end a rank."""
        now = time.monotonic()
        if not self._ladder and now >= self._deadline and self._alive:
            reason = f"was still running at the deadline of {self._limit:g} s"
            self._failures.append(Failure(min(self._alive), reason, "", OWN, now))
            self._stop(now)
        while self._ladder and self._ladder[0][0] <= now:
            _, number = self._ladder.popleft()
            if number == _LOST:
                return False
            self._stopped_at = min(self._stopped_at, now)
            for child in self._alive.values():
                child.send(number)
        return True

    def _collect(self) -> None:
        """Take note of every rank that has ended, and leave nothing of it behind."""
        for child in list(self._alive.values()):
            result = child.ended()
            if result is None:
                continue
            said = child.said()
            child.remove()
            del self._alive[child.rank]
            if said == RETURNED and (result.si_code, result.si_status) == (os.CLD_EXITED, 0):
                self._returned.append(child.rank)
            else:  # also a crash in an exit handler, after the function returned
                self._note(child.rank, result, said.removeprefix(RETURNED).decode(errors="replace"))

    def _note(self, rank: int, result: os.waitid_result, said: str) -> None:
        exited = result.si_code == os.CLD_EXITED
        failure = outcome(
            rank,
            code=result.si_status if exited else 0,
            signal_number=0 if exited else result.si_status,
            said=said,
            at=time.monotonic(),
        )
        if rank in self._may_lose and failure.weight == OWN and not failure.usage and not self._ladder:
            self.lost.append(failure)
            return
        if failure.at >= self._stopped_at:
            if failure.stopped:
                return
            failure = late(failure)
        self._failures.append(failure)
        settle = _SETTLE if failure.weight <= TESTIMONY else _SETTLE_CONSEQUENCE
        first = time.monotonic() + settle
        if not self._ladder or (self._ladder[0][1] == signal.SIGINT and first < self._ladder[0][0]):
            self._stop(first)

    def _finish(self) -> None:
        for number in self._signals.wait(0):  # one that came while the last rank ended is not lost
            self._interrupt(number)
        if self._interrupted_by == signal.SIGINT:
            raise KeyboardInterrupt
        if self._interrupted_by:
            raise SystemExit(128 + self._interrupted_by)
        if not self._failures:
            return
        failure = explained(cause(self._failures), self.lost)
        if failure.weight > TESTIMONY and self._returned:
            ranks = ", ".join(map(str, sorted(self._returned)))
            failure = replace(failure, reason=f"{failure.reason} (after rank {ranks} had returned)")
        raise failure.error()
