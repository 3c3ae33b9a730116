"""Start ranks on this machine: one process imports torch, then forks them all.

    launcher (torch imported, no tensor operation run yet)
       │  listen on 127.0.0.1, at a port that the kernel chooses    nothing guessed, nobody outside connects
       │  fork ─► rank 0   inherits the listening socket            (torch's TCPStore: master_listen_fd)
       │  fork ─► rank 1 …                                          (forked.py: what a rank does)
       └─ watch until every rank has returned                       (supervise.py)

Why fork: `import torch` takes 1.5 to 2.7 s and 130 MB per process; forked ranks share both, and one more rank
costs about 4 ms. This module imports no torch itself, and the function to run is an argument.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paceline.errors import ConfigError, PacelineError, RankFailed
from paceline.launch.environment import Place, command_started
from paceline.launch.forked import be_rank
from paceline.launch.signals import Signals
from paceline.launch.supervise import GRACE, Child, Watch

_ADDRESS = "127.0.0.1"


def start(
    function: Callable[[Place], None],
    ranks: int,
    *,
    threads: int,
    started: float | None = None,
    grace: float = GRACE,
    deadline: float | None = None,
    tick: Callable[[], None] | None = None,
    serve: Callable[[int, int], object] | None = None,
    may_lose: Collection[int] = (),
) -> list[RankFailed]:
    """Run `function(place)` in `ranks` forked processes; return when it has returned in all of them.

    `threads` is the number of threads per rank. `started` is the time.time() at which the command began.
    A rank that fails ends the others within 5 s: RankFailed names it; a UsageError raised in a rank is raised
    here as it was. SIGINT ends the ranks and raises KeyboardInterrupt, SIGTERM and SIGHUP raise
    SystemExit(128 + number); a second signal ends them at once. `grace` is the time in seconds a rank has
    between KeyboardInterrupt and SIGTERM. Ranks that still run after `deadline` seconds are a failure.
    `tick` is called about once a second while they run (a progress display; it must start no thread).
    `serve(port, listen_fd)` is called when all are forked and owns the descriptor; what it returns is kept
    until they have ended. It serves the store in the place of rank 0, which then gets no `listen_fd`.
    `may_lose` are ranks whose death by their own fault ends nobody else; those that died are returned."""
    if ranks < 1:
        raise ConfigError(f"{ranks} ranks cannot be started; at least 1 is needed")
    check_forkable()
    started = command_started() if started is None else started
    children: list[Child] = []
    served: object = None
    with Signals() as signals:
        try:
            gc.freeze()  # or a rank's first collection writes to every object it shares: 41 MB a rank, not 3
            served = _fork_all(children, function, ranks, threads, started, signals, serve)
            watch = Watch(children, signals, grace=grace, deadline=deadline, tick=tick, may_lose=may_lose)
            return watch.run()
        finally:
            gc.unfreeze()
            for child in children:
                child.remove()
            del served  # now, and not when an exception that holds this frame is let go


@contextmanager
def alone() -> Iterator[Place]:
    """The place of a process that nobody launched: rank 0 of 1, with its own socket on loopback."""
    with socket.create_server((_ADDRESS, 0)) as listener:
        port, listen_fd = listener.getsockname()[1], os.dup(listener.fileno())
    yield _place(0, 1, port, listen_fd, command_started())


def check_forkable() -> None:
    """Refuse to fork a process whose native threads would be missing in the ranks.

    A fork copies the calling thread alone. A rank that inherits a running OpenMP pool waits in its first
    parallel operation for threads that are not there, for ever. Libraries that can be forked (OpenBLAS) end
    their threads in a fork handler and are alone after a fork; what is left then cannot be forked. Measured
    with torch 2.13: nothing is left after `import torch`, one thread after the first tensor operation on two
    cores. A trial fork costs 6 to 9 ms. Threads of Python are not refused: whether they hold a lock that a
    rank needs is for the caller to know."""
    if threading.current_thread() is not threading.main_thread():
        raise PacelineError("bug: ranks are started outside the main thread, which alone receives signals")
    trial = os.fork()
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    give_up = time.monotonic() + 0.2  # a thread that has just ended may be listed for a moment
    while native := _native_threads():
        if time.monotonic() > give_up:
            raise PacelineError(
                f"bug: {native} native thread(s) run where ranks are to be started (did a tensor operation "
                "run?); start the ranks first or from a fresh process"
            )
        time.sleep(0.01)


def _native_threads() -> int:
    """How many threads of this process Python did not start; 0 where there is no /proc."""
    known = {thread.native_id for thread in threading.enumerate()}
    with suppress(FileNotFoundError):
        return sum(int(task.name) not in known for task in Path("/proc/self/task").iterdir())
    return 0


def _fork_all(
    children: list[Child],
    function: Callable[[Place], None],
    ranks: int,
    threads: int,
    started: float,
    signals: Signals,
    serve: Callable[[int, int], object] | None,
) -> object:
    """Fork the ranks, adding each to `children` as soon as it is there; returns what `serve` does."""
    launcher = os.getpid()
    sys.stdout.flush()  # or each rank would print what is still in the buffer
    sys.stderr.flush()
    with socket.create_server((_ADDRESS, 0), backlog=ranks + 8) as listener, signals.held_back():
        listen_fd, port = listener.fileno(), listener.getsockname()[1]
        for rank in range(ranks):
            # In memory: a full disk must not hide why a rank ended.
            said_fd = os.memfd_create("paceline-rank")
            pid = _fork(rank, ranks, said_fd)
            if pid == 0:
                others = [child.said_fd for child in children]
                listens = rank == 0 and serve is None
                be_rank(
                    function,
                    _place(rank, ranks, port, listen_fd if listens else None, started),
                    threads=threads,
                    launcher=launcher,
                    said_fd=said_fd,
                    not_mine=others if listens else [*others, listen_fd],
                    signals=signals,
                )
            with suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)  # the rank does so too: the group is there, whoever comes first
            children.append(Child(rank, pid, said_fd))
        return serve(port, os.dup(listen_fd)) if serve else None


def _fork(rank: int, ranks: int, said_fd: int) -> int:
    try:
        return os.fork()
    except OSError as error:
        os.close(said_fd)
        raise PacelineError(
            f"cannot start rank {rank} of {ranks}: {error.strerror}; use fewer ranks or raise the limit"
        ) from error


def _place(rank: int, ranks: int, port: int, listen_fd: int | None, started: float) -> Place:
    return Place(
        rank=rank,
        size=ranks,
        local_rank=rank,
        local_size=ranks,
        node=0,
        nodes=1,
        launcher="local",
        address=_ADDRESS,
        port=port,
        listen_fd=listen_fd,
        started=started,
    )
