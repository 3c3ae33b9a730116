"""diloco: local steps by an inner optimizer, then one outer step on what they changed.

    x ──▶ sync_every local steps ──▶ x_r        every rank, its own data, its own inner optimizer
    change   d  = mean over ranks of (x - x_r)  one message
    outer    m  = momentum·m + d
             x  = x - lr·(d + momentum·m)       Nesterov; the same bits on every rank
    everybody goes on from x

Cost of a round: one collective over as many elements as there are parameters, every sync_every steps; three
copies of the parameters in memory (where the round began, momentum, message). With outer lr 1 and momentum 0
it is local_sgd.

fragments   parameters cut into that many pieces, each with a round of its own; the rounds are spread evenly
            over sync_every steps: the same bytes in all, but the largest message is a fraction. The end of an
            epoch ends all of them.
message     float32, bf16, fp16 (averages are accumulated in float32), or int8: blocks of 256 numbers with one
            scale each, gathered and averaged by everybody. What rounding loses is added to the next message.

After Douillard et al. 2023 (DiLoCo) and 2025 (streaming).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.errors import ConfigError, one_of
from paceline.metrics.clock import Meter
from paceline.strategies._base import Strategy
from paceline.strategies._buffers import CHOICES, align_buffers
from paceline.strategies._periods import counted, counts, parse_period
from paceline.strategies._quantised import MESSAGES, averaged
from paceline.strategies._replica import Replica


class Diloco(Strategy):
    """An outer Nesterov optimizer over rounds of local steps."""

    lockstep: ClassVar[bool] = False

    def __init__(
        self,
        world: World,
        collective: Collective,
        meter: Meter,
        *,
        sync_every: int | str = 64,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        fragments: int = 1,
        message: str = "float32",
        buffers: str = "average",
    ) -> None:
        super().__init__(world, collective, meter)
        one_of("diloco: message", message, MESSAGES)
        one_of("diloco: buffers", buffers, CHOICES)
        every = parse_period("diloco", sync_every)
        if not 0 < outer_lr <= 2 or not 0 <= outer_momentum < 1:
            raise ConfigError("diloco: outer_lr must be above 0 up to 2, outer_momentum from 0 to below 1")
        if fragments < 1 or (every is None and fragments > 1) or (every and fragments > every):
            raise ConfigError("diloco: fragments must be 1 to sync_every, and 1 where that is an epoch")
        self._outer = (outer_lr, outer_momentum)
        self._message = message
        self._buffers = buffers
        self._every = every
        self._count = fragments
        self._steps = 0
        self._lengths: Counter[int] = Counter()

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        module = super().attach(model, optimizer)
        replica = Replica(model, self.collective, with_buffers=False)
        if len(replica.flats) > 1:
            raise ConfigError("diloco: the model's parameters have several types; it takes one")
        pieces = replica.flats[0].tensor_split(self._count)
        self._fragments = [_Fragment(piece, *self._outer) for piece in pieces]
        return module

    def step(self) -> None:
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self._steps += 1
        for number, fragment in enumerate(self._fragments):
            fragment.since += 1
            if self._every and (self._steps + number * self._every // self._count) % self._every == 0:
                self._agree(fragment)

    def synchronize(self) -> None:
        """The round of every fragment ends here: ranks are only compared when they are equal."""
        for fragment in self._fragments:
            if fragment.since:
                self._agree(fragment)
        align_buffers(self.collective, list(self.model.buffers()), self._buffers)

    def _agree(self, fragment: _Fragment) -> None:
        change = fragment.change()
        fragment.step(averaged(self.collective, change, self._message, fragment.residual))
        self._lengths[fragment.since] += 1
        fragment.since = 0

    def account(self) -> dict[str, Any]:
        return {"steps_between_agreements": counts(self._lengths)}

    def state_dict(self) -> dict[str, Any]:
        """The outer optimizer, the same on every rank, and what rounding has held back, each rank's own."""
        fragments = [fragment.state() for fragment in self._fragments]
        return {"steps": self._steps, "lengths": counts(self._lengths), "fragments": fragments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._steps = int(state["steps"])
        self._lengths = counted(state["lengths"])
        for fragment, kept in zip(self._fragments, state["fragments"], strict=True):
            fragment.restore(kept)


class _Fragment:
    """A piece of the parameters, where its round began, and its outer momentum."""

    def __init__(self, values: Tensor, lr: float, momentum: float) -> None:
        self.since = 0
        self._values = values
        self._began = values.clone()
        self._velocity = torch.zeros_like(values)
        self._lr, self._momentum = lr, momentum
        self.residual = torch.zeros_like(values)

    def change(self) -> Tensor:
        """Where the round began minus where this rank is."""
        return self._began - self._values

    def step(self, change: Tensor) -> None:
        """One outer step; this rank goes on from where it leads."""
        self._velocity.mul_(self._momentum).add_(change)
        self._began.sub_(change, alpha=self._lr).sub_(self._velocity, alpha=self._lr * self._momentum)
        self._values.copy_(self._began)

    def state(self) -> dict[str, Any]:
        """Plain values and tensors."""
        tensors = {"began": self._began, "velocity": self._velocity, "residual": self.residual}
        return {name: tensor.clone() for name, tensor in tensors.items()} | {"since": self.since}

    def restore(self, state: dict[str, Any]) -> None:
        """The counterpart of state."""
        self.since = int(state["since"])
        self._began.copy_(state["began"])
        self._velocity.copy_(state["velocity"])
        self.residual.copy_(state["residual"])
