"""Work: what torch.distributed holds of a collective that was started, and when it is done or failed.

    who asks            through               gets
    Python              wait()                True, or the error raised
    C++ (DDP)           get_future().wait()   the tensors, or the error raised
    C++ (DDP join)      wait(timedelta)       as above; keeps only its half of this object (see __del__)

A Future made in Python cannot be given an error that C++ sees; one whose callback raises is failed for both.
Hence a future that is handed out before the end is that of a callback that looks whether there was an error.
Futures are made when asked for: a plain dist.all_reduce never does.
"""

from __future__ import annotations

import _thread
import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from paceline.errors import PacelineError, RankFailed

# Works that nobody had asked anything when Python let go of them: C++ may still hold its half of one, whose
# wait() without the Python half blocks for ever (DDP's join does this).
_DROPPED: deque[CollectiveWork] = deque(maxlen=256)
_ASKING = threading.Lock()  # between asking for a future and the end of the work; held for a few bytecodes


_SILENCES = ("did not come", "exchanged nothing", "sent nothing")
"""How errors of ranks that are there but do not answer begin; programs look for gloo's words."""


class CollectiveWork(dist.Work):
    """One collective of one rank; `function` does it, `tensors` are its results."""

    def __init__(self, function: Callable[[], object], tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self._function: Callable[[], object] | None = function
        self._tensors = list(tensors)
        self._raw: Future[list[Tensor]] | None = None
        self._future: Future[list[Tensor]] | None = None
        self._ended = False
        self._asked = False
        self._patience: Callable[[_thread.LockType], None] | None = None
        self._over: _thread.LockType | None = None

    # what the engine calls

    def run(self) -> BaseException | None:
        """Do it; what went wrong is kept for who waits, and returned."""
        function, self._function = self._function, None  # it holds tensors
        try:
            assert function is not None
            function()
        except Exception as error:
            self.error = as_torch(error)
            return error
        return None

    def queued(self, patience: Callable[[_thread.LockType], None]) -> None:
        """It will be done by another thread; `patience` acquires a lock or gives up."""
        self._over = _thread.allocate_lock()
        self._over.acquire()
        self._patience = patience

    def refuse(self, error: BaseException) -> None:
        """It will not be done."""
        self._function = None
        self.error = error

    def end(self) -> Callable[[], None] | None:
        """Tell those who wait. What is returned completes the future: callbacks run in it, and may wait."""
        with _ASKING:
            self._ended = True
            raw = self._raw
        if self._over is not None:
            self._over.release()
        return None if raw is None else functools.partial(raw.set_result, self._tensors)

    # what torch calls

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._asked = True
        if not self._ended:
            self._wait(timeout.total_seconds() if timeout else 0.0)
        if self.error is not None:
            raise self.error
        return True

    def get_future(self) -> Future[list[Tensor]]:
        self._asked = True
        with _ASKING:
            if self._future is not None:
                return self._future
            raw = Future[list[Tensor]]()
            self._future = raw
            ended = self._ended
            if not ended or self.error is not None:
                self._raw = raw
                self._future = raw.then(self._checked)
        if ended:
            raw.set_result(self._tensors)
        return self._future

    def is_completed(self) -> bool:
        return self._ended

    def is_success(self) -> bool:
        return self._ended and self.error is None

    def exception(self) -> BaseException | None:
        return self.error

    def result(self) -> list[Tensor]:
        self.wait()
        return self._tensors

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        raise RuntimeError("source_rank() may only be asked of a receive; this is a collective")

    _source_rank = source_rank

    def _checked(self, raw: Future[list[Tensor]]) -> list[Tensor]:
        if self.error is not None:
            raise self.error
        return raw.value()

    def _wait(self, seconds: float) -> None:
        assert self._over is not None and self._patience is not None
        if seconds <= 0:
            self._patience(self._over)
        elif not self._over.acquire(timeout=seconds):
            raise dist.DistBackendError(f"Timed out waiting {seconds * 1e3:g}ms for a collective to end")
        self._over.release()  # the next to wait passes too

    def __del__(self) -> None:
        if not self._asked:
            self._asked = True
            self._tensors = []
            _DROPPED.append(self)


def as_torch(error: Exception) -> Exception:
    """What programs written for PyTorch expect of a backend; ours is its cause."""
    if not isinstance(error, PacelineError):
        return error
    silent = isinstance(error, RankFailed) and error.reason.startswith(_SILENCES)
    found = dist.DistBackendError(f"paceline: Timed out waiting: {error}" if silent else str(error))
    found.__cause__ = error
    return found


def skip_in_compiled(*functions: Any) -> None:
    """Have torch.compile leave these and what they call alone: C++ calls them back while it traces.

    `torch.compiler.disable` would do it too, but imports the compiler at the first collective (seconds)."""
    from torch._C._dynamo.eval_frame import (  # type: ignore[import-not-found,unused-ignore]
        _FrameAction,
        _FrameExecStrategy,
        set_code_exec_strategy,
    )

    skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for function in functions:
        set_code_exec_strategy(function.__code__, skip)
