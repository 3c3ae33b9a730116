"""One process at a time, over all processes of a machine: flock on a file, with a deadline.

The kernel drops the lock when its holder ends, however it ends, so a killed process blocks nobody. The lock
file stays behind (removing it would let two processes lock two files of the same name).
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import DataError

_POLL_SECONDS = 0.05
_SILENT_SECONDS = 2.0


@contextmanager
def exclusive(path: Path, what: str, deadline_seconds: float = 600.0) -> Iterator[None]:
    """Hold the lock `path`; says so on standard error when another process makes us wait for `what`.

    A deadline of 0 does not wait at all."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait(descriptor, path, what, deadline_seconds)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: Path, what: str, deadline_seconds: float) -> None:
    start, said = time.monotonic(), False
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - start
        if waited > deadline_seconds:
            other = f"another process to {what} (it holds {path})"
            found = f"waited {deadline_seconds:.0f} s for" if deadline_seconds else "there is"
            raise DataError(f"{found} {other}; end it and try again")
        if waited > _SILENT_SECONDS and not said:
            print(f"paceline: waiting for another process to {what}", file=sys.stderr, flush=True)
            said = True
        time.sleep(_POLL_SECONDS)
