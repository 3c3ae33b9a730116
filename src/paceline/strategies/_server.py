"""The serving side of parameter_server: a thread a trainer, one set of parameters, one lock.

    thread of trainer t    recv push ─▶ [ lock: policy, update, copy of the parameters ] ─▶ send pull
                                          └ may wait: for a round (sync), for the slowest (ssp)

A trainer that dies closes its connection. Where that is to be survived it is `gone` from then on: nobody
waits for it, and its piece of the epoch is dealt again (_pieces.py). A trainer with nothing left to do stays
until no piece can come back.

A thread waits in a socket or at the condition, both without Python's interpreter lock. The pull is a copy
made under the lock, so what a trainer gets is one version and never half of two.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.comm.links import Link
from paceline.errors import RankFailed
from paceline.strategies._periods import counted, counts
from paceline.strategies._pieces import Pieces
from paceline.strategies._server_messages import END, IDLE, NOTHING, PUSH, Message


class Policy(ABC):
    """When a push becomes an update, and when its trainer is answered. Called with the lock held."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    @abstractmethod
    def pushed(self, trainer: int, push: Message) -> Callable[[], bool]:
        """Take a push; returns what must be true before the trainer is answered."""

    @abstractmethod
    def awaited(self) -> int:
        """Whom the others wait for."""

    def left(self, trainer: int) -> None:  # noqa: B027 - most policies have nothing to do then
        """A trainer's epoch is over."""


class Sync(Policy):
    """One update by the mean of a round; a round is all trainers, or all but the `backup` slowest."""

    def __init__(self, shelf: Shelf, backup: int, clip_norm: float | None = None) -> None:
        super().__init__(shelf)
        self._backup = backup
        self._clip_norm = clip_norm
        self._round: dict[int, Message] = {}

    def pushed(self, trainer: int, push: Message) -> Callable[[], bool]:
        if push.version < self.shelf.version:  # its round was closed without it
            self.shelf.dropped += 1
            return lambda: True
        self._round[trainer] = push
        self._close_round()
        return lambda: self.shelf.version > push.version

    def awaited(self) -> int:
        return min(self.shelf.active - self._round.keys(), default=0)

    def left(self, trainer: int) -> None:
        self._close_round()

    def _close_round(self) -> None:
        if not self._round or len(self._round) < max(1, len(self.shelf.active) - self._backup):
            return
        pushes = [self._round[trainer] for trainer in sorted(self._round)]
        mean = self.shelf.gradient.copy_(pushes[0].values)
        for push in pushes[1:]:
            mean.add_(push.values)
        mean.div_(len(pushes))
        if self._clip_norm is not None:
            mean.mul_((self._clip_norm / (mean.norm() + 1e-6)).clamp(max=1.0))  # as clip_grad_norm_ does
        self.shelf.released_by = next(reversed(self._round))  # the last one in the order of their coming
        self._round.clear()
        self.shelf.staleness[0] += len(pushes)
        self.shelf.update(pushes[0].rates)


class Async(Policy):
    """An update a push; `bound` steps ahead of the slowest at most (None: any number)."""

    def __init__(self, shelf: Shelf, bound: int | None, *, by_staleness: bool) -> None:
        super().__init__(shelf)
        self._bound = bound
        self._by_staleness = by_staleness
        self._steps: Counter[int] = Counter()

    def pushed(self, trainer: int, push: Message) -> Callable[[], bool]:
        old = self.shelf.version - push.version
        self.shelf.staleness[old] += 1
        self.shelf.gradient.copy_(push.values)
        self.shelf.update([rate / (1 + old) if self._by_staleness else rate for rate in push.rates])
        before = self._slowest()
        self._steps[trainer] += 1
        if self._slowest() > before:
            self.shelf.released_by = trainer
        bound = self._bound
        return lambda: bound is None or self._steps[trainer] - self._slowest() <= bound

    def _slowest(self) -> int:
        return min((self._steps[trainer] for trainer in self.shelf.active), default=0)

    def awaited(self) -> int:
        return min(self.shelf.active, key=lambda trainer: self._steps[trainer], default=0)

    def left(self, trainer: int) -> None:
        if not self.shelf.active:
            self._steps.clear()


class Shelf:
    """The parameters of one server, their version, and what is counted about them."""

    def __init__(self, values: Tensor, gradient: Tensor, optimizer: torch.optim.Optimizer) -> None:
        self.values = values
        self.gradient = gradient
        self.version = 0
        self.active: set[int] = set()
        """Trainers that others may have to wait for."""
        self.gone: set[int] = set()
        """Trainers that have died."""
        self.dropped = 0
        self.staleness: Counter[int] = Counter()
        self.released_by = 0
        """Whose push the others had been waiting for."""
        self.waited_for: defaultdict[int, float] = defaultdict(float)
        self.pieces = Pieces()
        self._optimizer = optimizer

    @property
    def groups(self) -> int:
        """Of the optimizer; each has its learning rate."""
        return len(self._optimizer.param_groups)

    def state(self) -> dict[str, Any]:
        """Version and counts; the optimizer's state is its own."""
        return {"version": self.version, "dropped": self.dropped, "staleness": counts(self.staleness)}

    def restore(self, state: dict[str, Any]) -> None:
        """The counterpart of state."""
        self.version, self.dropped = int(state["version"]), int(state["dropped"])
        self.staleness = counted(state["staleness"])

    def update(self, rates: Sequence[float]) -> None:
        """One step of the user's optimizer by `gradient`."""
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._optimizer.step()
        self.version += 1


class Server:
    """Answers all trainers of an epoch.

    `may_lose`: trainers whose death is survived; `deals`: is it this server that deals the pieces?"""

    def __init__(
        self,
        link: Link,
        trainers: int,
        shelf: Shelf,
        policy: Policy,
        *,
        deadline: float,
        may_lose: Collection[int] = (),
        deals: bool = True,
    ) -> None:
        self._link = link
        self._trainers = range(trainers)
        self._shelf = shelf
        self._policy = policy
        self._deadline = deadline
        self._may_lose = frozenset(may_lose)
        self._deals = deals
        self._changed = threading.Condition()
        self._failed: BaseException | None = None

    def serve(self) -> None:
        """Returns when every trainer has said that its epoch is over, or is gone."""
        trainers = [trainer for trainer in self._trainers if trainer not in self._shelf.gone]
        self._shelf.active = set(trainers)
        self._shelf.pieces.begin(trainers)
        threads = [
            threading.Thread(target=self._attend, args=(trainer,), name=f"trainer-{trainer}", daemon=True)
            for trainer in trainers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed is not None:
            raise self._failed

    def _attend(self, trainer: int) -> None:
        torch.set_grad_enabled(False)  # a new thread begins with it on
        try:
            values = self._shelf.values
            push, pull = (Message(len(values), self._shelf.groups, values.dtype) for _ in "ab")
            while self._moved(trainer, lambda: self._link.recv(push.flat, trainer)):
                with self._changed:
                    stays = self._take(trainer, push, pull)
                answered = push.kind == PUSH or (push.kind == IDLE and self._deals)
                if answered and not self._moved(trainer, lambda: self._link.send(pull.flat, trainer)):
                    return
                if not stays:
                    return
        except BaseException as error:  # whoever serves hears it
            with self._changed:
                self._failed = self._failed or error
                self._changed.notify_all()

    def _moved(self, trainer: int, move: Callable[[], None]) -> bool:
        """False where the trainer has died and that is survived; silence of a whole deadline is not."""
        began = time.monotonic()
        try:
            move()
        except RankFailed:
            if trainer not in self._may_lose or time.monotonic() - began >= self._deadline:
                raise
            with self._changed:
                self._shelf.gone.add(trainer)
                self._shelf.pieces.lose(trainer)
                self._leave(trainer)
            return False
        return True

    def _take(self, trainer: int, push: Message, pull: Message) -> bool:
        """What a message brings about; False when it was the trainer's last of the epoch."""
        if push.kind == END:
            self._leave(trainer)
            return False
        if push.kind == IDLE:
            return self._wait_for_more(trainer, pull)
        self._shelf.active.add(trainer)
        self._answer(trainer, push, pull)
        return True

    def _leave(self, trainer: int) -> None:
        self._shelf.active.discard(trainer)
        self._policy.left(trainer)
        self._changed.notify_all()

    def _wait_for_more(self, trainer: int, pull: Message) -> bool:
        """A trainer has nothing left to do: until a piece is dealt again, or nobody works any more."""
        shelf = self._shelf
        shelf.pieces.done(trainer)
        self._leave(trainer)
        if not self._deals:
            return True
        self._wait(lambda: shelf.pieces.returned or not shelf.active)
        more = shelf.pieces.returned
        if more:
            shelf.active.add(trainer)
        pull.values.copy_(shelf.values)
        pull.stamp(shelf.pieces.take(trainer) if more else NOTHING, shelf.version)
        return more

    def _answer(self, trainer: int, push: Message, pull: Message) -> None:
        ready = self._policy.pushed(trainer, push)
        self._changed.notify_all()
        came = time.monotonic()
        self._wait(ready)
        if self._shelf.released_by != trainer:
            self._shelf.waited_for[self._shelf.released_by] += time.monotonic() - came
        pull.values.copy_(self._shelf.values)
        pull.stamp(self._shelf.pieces.take(trainer), self._shelf.version)

    def _wait(self, ready: Callable[[], bool]) -> None:
        if not self._changed.wait_for(lambda: self._failed is not None or ready(), self._deadline):
            raise RankFailed(self._policy.awaited(), f"let others wait for {self._deadline:g} s")
        if self._failed is not None:
            raise self._failed
