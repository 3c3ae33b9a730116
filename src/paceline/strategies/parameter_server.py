"""parameter_server: some ranks keep the parameters, the others train and ask them.

    trainer 0   forward ─ backward ─▶ push gradient ─┐   ┌─▶ pull parameters ─ forward …
    trainer 1   forward ─ backward ─▶ push gradient ─┼─▶ │   update (optimizer, momentum) at the server
    trainer 2   forward ─ backward ─▶ push gradient ─┘   └─▶ pull parameters ─ forward …

mode     the server answers a push …                                       parameters are old by
sync     when the gradients of all trainers are there: one update by their mean        nothing
         `backup` = k: when all but the k slowest are there; those are dropped
async    at once, after an update by this gradient alone                               any number of updates
ssp      as async, but a trainer more than `staleness` steps ahead of the slowest waits    about that many

Cost of a step: a trainer sends one push and receives one pull, each as long as the parameters plus a stamp of
8 bytes and 4 a parameter group. A server moves as much for every trainer: its link is the bottleneck, so
parameters can be cut over `servers` = s ranks (the last ones), each of which keeps 1/s and trains nothing.

momentum          the velocity is the server's; async and ssp lower it by the rule of _momentum.py ("scaled")
lr_by_staleness   async and ssp: an update by a gradient that is s updates old is made with lr / (1 + s)
survive           async and ssp, ranks started by paceline: a trainer (but rank 0) that dies while it trains
                  is reported and gone; its piece of the epoch is dealt again, and at the epoch's end the
                  others compare replicas over a collective of their own. Who dies in that comparison, or as
                  a server, ends the run
turns             claimed: a trainer takes the next piece of the epoch when it is ready, so a slow one takes
                  fewer (async, ssp); dealt: each has the same number of steps (sync; by choice elsewhere)
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from paceline.comm.collectives import Collective
from paceline.comm.links import Counted, make_link
from paceline.comm.world import World
from paceline.data.shard import seat_slice
from paceline.errors import ConfigError
from paceline.metrics.clock import Meter
from paceline.strategies._base import Loop, Seats, Strategy
from paceline.strategies._flat import check_element_wise, flattened, next_places
from paceline.strategies._momentum import scale_momentum_
from paceline.strategies._periods import counts
from paceline.strategies._server import Async, Policy, Server, Shelf, Sync
from paceline.strategies._server_messages import END, IDLE, NOTHING, PUSH, Message
from paceline.strategies._server_options import check_choices, check_numbers, trainers_of


class ParameterServer(Strategy):
    """The last `servers` ranks keep the parameters and train nothing.

    `mode`: sync, async, or ssp with its bound `staleness`; `backup`: slowest gradients of a round that are
    dropped (sync); `lr_by_staleness`: lr / (1 + staleness); `momentum` (async, ssp): scaled with the number
    of trainers, or given; `turns`: claimed or dealt; `link`: what is sent over; `element_wise`: trust an
    optimizer of your own; `survive`: go on without a trainer that dies."""

    lockstep: ClassVar[bool] = False
    in_rounds: ClassVar[bool] = False
    least_ranks: ClassVar[int] = 2

    def __init__(
        self,
        world: World,
        collective: Collective,
        meter: Meter,
        *,
        servers: int = 1,
        mode: str = "sync",
        staleness: int = 4,
        backup: int = 0,
        lr_by_staleness: bool = False,
        momentum: str = "scaled",
        turns: str = "auto",
        link: str = "torch_p2p",
        element_wise: bool = False,
        survive: bool = False,
    ) -> None:
        super().__init__(world, collective, meter)
        self._trainers = trainers_of(world.size, servers)
        check_choices(mode, momentum, turns, survive=survive)
        check_numbers(staleness, backup, self._trainers)
        self._survives = survive
        self._alive = list(range(world.size))
        self._agreed = 0
        self._servers = servers
        self._mode = mode
        self._bound = staleness
        self._backup = backup
        self._by_staleness = lr_by_staleness
        self._claims = turns == "claimed" or (turns == "auto" and mode != "sync")
        self._scales = momentum == "scaled" and mode != "sync"
        self._trusted = element_wise
        self._link = Counted(make_link(link, world))
        self._at = (min(world.rank, self._trainers - 1), self._trainers)
        self._versions = [0] * servers

    @classmethod
    def trainers(cls, ranks: int, options: Mapping[str, Any]) -> int:
        return trainers_of(ranks, int(options.get("servers", 1)))

    @classmethod
    def losable(cls, ranks: int, options: Mapping[str, Any]) -> frozenset[int]:
        return frozenset(range(1, cls.trainers(ranks, options)) if options.get("survive") else ())

    @property
    def lost(self) -> list[int]:
        return [rank for rank in range(self.world.size) if rank not in self._alive]

    @property
    def seat(self) -> tuple[int, int]:
        return self._at

    @property
    def _serving(self) -> int | None:
        """Which server this rank is."""
        number = self.world.rank - self._trainers
        return number if number >= 0 else None

    def turns(self, steps: int) -> Iterator[tuple[int, Seats]]:
        if not self._claims:
            yield from super().turns(steps)
            return
        self._piece = self._alive.index(self.world.rank)
        while self._piece != NOTHING:
            while 0 <= self._piece < steps * self._trainers:
                number, seat = divmod(self._piece, self._trainers)
                self._at = (seat, self._trainers)
                yield number, [self._at]
            self._piece = self._more() if self._survives else NOTHING

    def _more(self) -> int:
        """Nothing is left to do here; wait for what a lost trainer may leave, or NOTHING."""
        self._push(IDLE)
        arrived = time.monotonic()
        dealer = self._messages[0]
        self._link.recv(dealer.flat, self._trainers)
        self.meter.expose(arrived, time.monotonic())
        return dealer.piece

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        if self.clip_norm is not None and self._mode == "sync" and self._servers > 1:
            raise ConfigError(
                "parameter_server: clip_norm needs the whole gradient, and in sync mode no server has it; "
                "use servers = 1, or leave clip_norm out"
            )
        check_element_wise("parameter_server", model, optimizer, trusted=self._trusted)
        module = super().attach(model, optimizer)
        trainable = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if len({p.dtype for p in trainable}) != 1:
            raise ConfigError("parameter_server: the model's parameters have several types; it takes one")
        total = sum(p.numel() for p in trainable)
        if self._scales:
            scale_momentum_(optimizer, self._trainers)
        self._values, self._gradients = (torch.zeros(total, dtype=trainable[0].dtype) for _ in "vg")
        self._groups = flattened(optimizer, next_places(self._values), next_places(self._gradients))
        self._parts = [seat_slice(total, number, self._servers) for number in range(self._servers)]
        kinds = len(optimizer.param_groups), trainable[0].dtype
        self._messages = [Message(part.stop - part.start, *kinds) for part in self._parts]
        if self._serving is not None:
            self._server = self._serve_part(self._parts[self._serving])
        return module

    def _serve_part(self, part: slice) -> Server:
        """The optimizer is left with the parameters of this part alone."""
        begin = 0
        for group in self.optimizer.param_groups:
            length = sum(p.numel() for p in group["params"])
            mine = slice(max(part.start, begin), min(part.stop, begin + length))
            begin += length
            group["params"] = []
            if mine.start < mine.stop:
                parameter = nn.Parameter(self._values[mine])
                parameter.grad = self._gradients[mine]
                group["params"].append(parameter)
        self._shelf = Shelf(self._values[part], self._gradients[part], self.optimizer)
        return Server(
            self._link,
            self._trainers,
            self._shelf,
            self._policy(),
            deadline=self.world.deadline,
            may_lose=range(1, self._trainers) if self._survives else (),
            deals=self._serving == 0,
        )

    def _policy(self) -> Policy:
        if self._mode == "sync":
            return Sync(self._shelf, self._backup, self.clip_norm)
        bound = self._bound if self._mode == "ssp" else None
        return Async(self._shelf, bound, by_staleness=self._by_staleness)

    def run(self, loop: Loop) -> None:
        if self._serving is None:
            loop()
        else:
            loop(self._server.serve)

    def step(self) -> None:
        """Push every part of the gradient, pull every part of the parameters."""
        for group in self._groups:
            group.ready()
        if self._mode != "sync":  # there an update's gradient is the mean of a round: the server shortens it
            self.clip()
        self._push(PUSH)
        arrived = time.monotonic()
        for number, (part, message) in enumerate(zip(self._parts, self._messages, strict=True)):
            self._link.recv(message.flat, self._trainers + number)
            self._values[part] = message.values
            self._versions[number] = message.version
        self.meter.expose(arrived, time.monotonic())
        self._piece = self._messages[0].piece
        self._gradients.zero_()

    def _push(self, kind: int, first: int = 0) -> None:
        """To all servers from the `first` on."""
        arrived = time.monotonic()
        rates = [group["lr"] for group in self.optimizer.param_groups]
        messages = list(enumerate(zip(self._parts, self._messages, strict=True)))
        for number, (part, message) in messages[first:]:
            message.values.copy_(self._gradients[part])
            message.stamp(kind, self._versions[number], rates)
            self._link.send(message.flat, self._trainers + number)
            self.meter.add(arrived, time.monotonic(), message.flat.nbytes)
            arrived = time.monotonic()

    def synchronize(self) -> None:
        """Trainers say that their epoch is over; then everybody gets every server's part."""
        if self._serving is None:  # whoever was told that nothing is left needs not tell the first server
            self._push(END, first=int(self._survives))
        if self._survives:
            self._agree_who_is_left()
        for number, part in enumerate(self._parts):
            server = self._alive.index(self._trainers + number)
            self.collective.broadcast_(self._values[part], server)
        super().synchronize()

    def _agree_who_is_left(self) -> None:
        """The first server says; when it is fewer than before, they meet without the others."""
        key = f"parameter_server/left/{self._agreed}"
        self._agreed += 1
        if self._serving == 0:
            left = [rank for rank in range(self.world.size) if rank not in self._shelf.gone]
            self.world.store.set(key, json.dumps(left))
        left = json.loads(self.world.store.get(key))
        if left != self._alive:
            self._alive = left
            self.collective.regroup(left)
            if self._serving is not None:
                self._shelf.gone.update(self.lost)

    def account(self) -> dict[str, Any]:
        if self._serving is None:
            return {}
        return {
            "staleness": counts(self._shelf.staleness),
            "dropped_gradients": self._shelf.dropped,
            "updates": self._shelf.version,
            "dealt_again": self._shelf.pieces.dealt_again if self._serving == 0 else 0,
            "waited_for": [self._shelf.waited_for[rank] for rank in range(self.world.size)],
        }

    def state_dict(self) -> dict[str, Any]:
        """Versions; the optimizer, whose state is worth keeping at the servers, is saved with them."""
        return {"versions": list(self._versions)} if self._serving is None else self._shelf.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._serving is None:
            self._versions = [int(version) for version in state["versions"]]
        else:
            self._shelf.restore(state)

    def close(self) -> None:
        self._link.close()
