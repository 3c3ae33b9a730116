"""Signals as readable bytes: the launcher sleeps until a rank ends, a signal comes or a deadline passes.

    SIGCHLD, SIGINT, SIGTERM, SIGHUP ──► C handler writes the number to a pipe ──► poll(pipe) returns

No Python code runs in a handler, so no signal can break in between a fork and the note that the new rank must
be ended later. (pidfds would tell of ended ranks too, but INT and TERM need the pipe anyway, and one way of
waking up is easier to trust than two.) Main thread only: Python runs its handlers there.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ALL = (signal.SIGCHLD, *_ENDING)


class Signals:
    """From `with` to its end, signals wake `wait` and do nothing else."""

    def __enter__(self) -> Signals:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._mask: set[int] = set()
        self._old_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._old: dict[int, Any] = {}
        for number in _ALL:
            # nohup and `command &` ignore signals on purpose. An ignored SIGCHLD would reap the ranks unread.
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:
                self._old[number] = signal.signal(number, _nothing)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._old_fd)
        unread = self.wait(0) if kind is None else []
        os.close(self._reader)
        os.close(self._writer)
        for number in unread[:1]:  # it came after the last look: whoever handles it now must hear of it
            signal.raise_signal(number)

    def wait(self, seconds: float) -> list[int]:
        """The ending signals that came; returns early at any signal, so also when a rank ends."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with suppress(BlockingIOError):
            return [number for number in os.read(self._reader, 4096) if number in _ENDING]
        return []

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Ending signals wait for the end of the block: a rank that is being forked cannot be missed."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        self._mask = {int(number) for number in before}
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def forget_in_rank(self) -> None:
        """In a forked rank: INT raises KeyboardInterrupt, so `finally` blocks run; the rest is as usual."""
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)
        for number in _ALL:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Installed so that the C handler is, which writes to the pipe."""
