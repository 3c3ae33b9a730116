"""Engine: the order in which one rank's collectives are done, and by which thread.

    a call that waits, or for which all ranks are there ──► here, on the thread that calls
    any other, and all behind it ──► queue ──► the leading thread, one after the other

A rank that comes last finds the others waiting, so it has nothing to gain from another thread and pays for no
switch; the others wait anyway. All ranks call the same in the same order, so this cannot deadlock.

Callbacks of futures run on the thread that ends the work, and may start other collectives and wait for them.
Whoever ends a work with a future therefore gives the lead away as soon as something is queued; threads
without the lead wait for it, and one is added when none is left. The first error ends the engine, because
the ranks are no longer in step.
"""

from __future__ import annotations

import _thread
import queue
import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from paceline.comm._backend_work import CollectiveWork
from paceline.errors import ConfigError

CLOSING_SECONDS = 10.0


class Engine:
    """Does works in the order in which they come; `everybody_is_here` may say no although they are."""

    def __init__(self, deadline: float, everybody_is_here: Callable[[], bool]) -> None:
        self._deadline = deadline
        self._everybody_is_here = everybody_is_here
        self._queue: queue.SimpleQueue[CollectiveWork | None] = queue.SimpleQueue()
        self._running = threading.Lock()  # one collective at a time
        self._lock = threading.Lock()  # the fields below
        self._unfinished = 0  # queued, or being done by a thread of ours
        self._finished = 0
        self._broken: BaseException | None = None
        self._closed = False
        self._ending = False  # the leader is telling that a work is done, and could be caught in callbacks
        self._led = False
        self._turn = 0  # counts how often the lead was passed on
        self._idle = 0
        self._lead_free = threading.Semaphore(0)

    def do(self, work: CollectiveWork, waits: bool) -> CollectiveWork:
        """The work, done or on its way."""
        here = self._everybody_is_here() or waits
        if here and not self._unfinished and self._running.acquire(blocking=False):
            try:
                self._run(work)
            finally:
                self._running.release()
            work.end()
        else:
            self._put(work)
        return work

    def close(self) -> bool:
        """Finish what is queued, refuse what comes. False when that cannot be finished; twice is harmless."""
        last = CollectiveWork(lambda: None, ())
        if not self._closed and self._led:
            self._put(last)
            self._queue.put(None)
        with self._lock:
            self._closed = True
        try:
            return not self._led or last.wait(timedelta(seconds=CLOSING_SECONDS))
        except dist.DistBackendError:
            return self._broken is not None

    def _put(self, work: CollectiveWork) -> None:
        work.queued(self._patience)
        with self._lock:
            self._unfinished += 1
            self._queue.put(work)
            if self._ending or not self._led:
                self._pass_lead()

    def _run(self, work: CollectiveWork) -> None:
        if self._broken is not None:
            error = dist.DistBackendError(f"an earlier collective of this group failed: {self._broken}")
            error.__cause__ = self._broken
            work.refuse(error)
        elif self._closed:
            work.refuse(dist.DistBackendError("this process group was destroyed"))
        else:
            problem = work.run()
            if problem is not None and not isinstance(problem, ConfigError):  # a refused call sent nothing
                self._broken = problem

    def _pass_lead(self) -> None:
        """Somebody else leads from now on (the lock is held)."""
        self._ending, self._led = False, True
        self._turn += 1
        if self._idle:
            self._idle -= 1
            self._lead_free.release()
        else:
            threading.Thread(target=self._serve, name="paceline-collective", daemon=True).start()

    def _serve(self) -> None:
        torch.set_grad_enabled(False)  # a new thread begins with it on
        while self._lead():
            self._lead_free.acquire()

    def _lead(self) -> bool:
        """Until the lead was passed on (True: wait for it) or the engine is closed."""
        while (work := self._queue.get()) is not None:
            with self._running:
                self._run(work)
            if not self._end(work):
                return True
            del work  # or the last tensors would live until the next call
        self._queue.put(None)  # for those who get the lead below, to end too
        self._lead_free.release(self._idle + 1)
        return False

    def _end(self, work: CollectiveWork) -> bool:
        """Tell that it is done; is the lead still ours?"""
        with self._lock:
            self._unfinished -= 1
            self._finished += 1
        complete = work.end()
        if complete is None:
            return True
        with self._lock:
            turn = self._turn
            self._ending = True
            if self._unfinished:
                self._pass_lead()
        complete()
        with self._lock:
            if turn == self._turn:
                self._ending = False
                return True
            self._idle += 1
            return False

    def _patience(self, over: _thread.LockType) -> None:
        """Wait for one work: each before it has the deadline, counted from the end of the one before it."""
        finished = -1
        while not over.acquire(timeout=self._deadline + 1.0):
            if finished == self._finished:
                raise dist.DistBackendError(
                    f"Timed out waiting {self._deadline:g} s for a collective; another rank is slower than "
                    "that, or stopped (if it is slower, give init_process_group a longer timeout)"
                )
            finished = self._finished
