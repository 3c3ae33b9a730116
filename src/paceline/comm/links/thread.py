"""thread: ranks that are threads of one process, with queues between them. To test and to explain with.

    in_threads(4, f)      rank 0  f(world)  ─┐
                          rank 1  f(world)  ─┼─ a queue for every pair and direction ─▶ [result of rank 0, …]
                          rank 2  f(world)  ─┤
                          rank 3  f(world)  ─┘

A world of 13 ranks starts in a millisecond, where processes take half a second. Cost of a message: two copies
and about 10 µs. It carries length and type along, so that a collective whose sides differ is found out.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import HashStore  # type: ignore[attr-defined]

from paceline.comm.links._base import Message
from paceline.comm.world import World
from paceline.errors import ConfigError, PacelineError, RankFailed

Result = TypeVar("Result")
_LOOK_SECONDS = 0.05  # how often a waiting rank looks whether another has failed


class Mail:
    """The queues of one world: (link, from, to) -> messages in their order."""

    def __init__(self) -> None:
        self.failed: RankFailed | None = None
        self._boxes: dict[tuple[int, int, int], queue.SimpleQueue[Tensor]] = {}
        self._lock = threading.Lock()

    def box(self, link: int, src: int, dst: int) -> queue.SimpleQueue[Tensor]:
        """Made by whoever comes first, the sender or the receiver."""
        with self._lock:
            return self._boxes.setdefault((link, src, dst), queue.SimpleQueue())


@dataclasses.dataclass(frozen=True)
class ThreadWorld(World):
    """A world in one process."""

    mail: Mail


class Thread:
    """Between the threads of a ThreadWorld."""

    def __init__(self, world: World) -> None:
        if not isinstance(world, ThreadWorld):
            raise ConfigError(
                "link 'thread' joins ranks that in_threads started in one process; choose torch_p2p"
            )
        self.rank = world.rank
        self.size = world.size
        self._mail = world.mail
        self._deadline = world.deadline
        self._number = int(world.store.add(f"thread/{world.rank}", 1))  # the same on all ranks

    def send(self, x: Tensor, dst: int) -> None:
        if x.numel():
            self._mail.box(self._number, self.rank, dst).put(x.clone())

    def recv(self, out: Tensor, src: int) -> None:
        if not out.numel():
            return
        message = self._take(src)
        if message.numel() != out.numel() or message.dtype != out.dtype:
            raise PacelineError(
                f"rank {src} sent {message.numel()} {message.dtype}, "
                f"rank {self.rank} expected {out.numel()} {out.dtype}"
            )
        out.copy_(message.view_as(out))

    def exchange(self, x: Tensor, dst: int, out: Tensor, src: int) -> None:
        self.send(x, dst)
        self.recv(out, src)

    def exchange_all(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        for x, dst in sends:
            self.send(x, dst)
        for out, src in receives:
            self.recv(out, src)

    def close(self) -> None:
        """The queues go with their world."""

    def _take(self, src: int) -> Tensor:
        box = self._mail.box(self._number, src, self.rank)
        until = time.monotonic() + self._deadline
        while time.monotonic() < until:
            try:
                return box.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if self._mail.failed is not None:
                    raise self._mail.failed from None
        raise RankFailed(src, f"sent nothing to rank {self.rank} within {self._deadline:g} s")


def in_threads(ranks: int, function: Callable[[World], Result], *, deadline: float = 30.0) -> list[Result]:
    """Call `function(world)` on every rank, each in a thread; the results in rank order.

    Raises the error of the rank that failed first; the others stop at their next message."""
    mail, store = Mail(), HashStore()
    store.set_timeout(timedelta(seconds=deadline))
    results: dict[int, Result] = {}
    first: list[BaseException] = []

    def rank_(rank: int) -> None:
        torch.set_grad_enabled(False)
        try:
            results[rank] = function(_world(rank, ranks, store, mail, deadline))
        except BaseException as error:  # it is raised where in_threads was called
            first.append(error)
            mail.failed = mail.failed or RankFailed(rank, f"failed: {error}")

    threads = [threading.Thread(target=rank_, args=(rank,), name=f"rank-{rank}") for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if first:
        raise first[0]
    return [results[rank] for rank in range(ranks)]


def _world(rank: int, ranks: int, store: HashStore, mail: Mail, deadline: float) -> ThreadWorld:
    return ThreadWorld(
        rank=rank,
        size=ranks,
        local_rank=rank,
        local_size=ranks,
        node=0,
        nodes=1,
        store=store,
        device=torch.device("cpu"),
        deadline=deadline,
        group=dist.ProcessGroup(rank, ranks),  # type: ignore[call-arg]  # no backend: it sends nothing
        mail=mail,
    )
