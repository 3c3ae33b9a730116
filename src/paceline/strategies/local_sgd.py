"""local_sgd: every rank trains on its own; now and then the replicas are averaged.

    rank 0   step step step step ┐              ┌ step step step step ┐
    rank 1   step step step step ┼─ average x ──┼ step step step step ┼─ average x ─   one message a round
    rank 2   step step step step ┘              └ step step step step ┘
             ◀── sync_every ───▶

Cost of a round: one collective over as many elements as there are parameters (and averaged buffers); a step
inside a round sends nothing. With sync_every = 1 and plain or momentum SGD it is synchronous training: the
mean of updates that are linear in the gradients is the update by the mean gradient.

synchronous_steps   the first steps agree every time ("post-local" SGD): replicas that drift apart before they
                    have found a valley average to something worse than each of them
warmup_rounds       then the period doubles from round to round, until it is sync_every
adaptive            the period follows the drift: halved while replicas move apart by more than they move
                    together, doubled while by less than a quarter of that. One more message a round, of one
                    number.
momentum            after an average each rank keeps its own, takes the mean of all, or starts from zero
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.errors import ConfigError, one_of
from paceline.metrics.clock import Meter
from paceline.strategies._base import Strategy
from paceline.strategies._buckets import average_together
from paceline.strategies._buffers import CHOICES, align_buffers
from paceline.strategies._periods import Period, parse_period
from paceline.strategies._replica import Replica

MOMENTA = ("own", "average", "zero")


class LocalSgd(Strategy):
    """Parameters are averaged every `sync_every` steps, or every "epoch" (`average` is the same option).

    `buffers`: average, broadcast rank 0's, or own; `momentum`: own, average or zero after an average."""

    lockstep: ClassVar[bool] = False

    def __init__(
        self,
        world: World,
        collective: Collective,
        meter: Meter,
        *,
        sync_every: int | str = 64,
        average: int | str | None = None,
        synchronous_steps: int = 0,
        warmup_rounds: int = 0,
        adaptive: bool = False,
        buffers: str = "average",
        momentum: str = "own",
    ) -> None:
        super().__init__(world, collective, meter)
        one_of("local_sgd: buffers", buffers, CHOICES)
        one_of("local_sgd: momentum", momentum, MOMENTA)
        every = parse_period("local_sgd", sync_every if average is None else average)
        if adaptive and every is None:
            raise ConfigError("local_sgd: an adaptive period needs sync_every in steps (its largest value)")
        self._period = Period(every, synchronous_steps, warmup_rounds, adaptive=adaptive)
        self._buffers = buffers
        self._momentum = momentum

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        module = super().attach(model, optimizer)
        self._replica = Replica(model, self.collective, with_buffers=self._buffers == "average")
        self._before = [flat.clone() for flat in self._replica.flats] if self._period.adaptive else []
        return module

    def step(self) -> None:
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        if self._period.step():
            self._average()

    def synchronize(self) -> None:
        if self._period.since:
            self._average()
        if self._buffers != "average":
            align_buffers(self.collective, list(self.model.buffers()), self._buffers)
        else:  # the floating ones are in the replica; counters are rank 0's
            whole = [b for b in self.model.buffers() if not b.is_floating_point()]
            align_buffers(self.collective, whole, "broadcast")

    def _average(self) -> None:
        """One message a type; afterwards all ranks hold the same parameters."""
        own = [flat.clone() for flat in self._replica.flats] if self._period.adaptive else []
        for flat in self._replica.flats:
            self.collective.all_reduce_(flat, "avg")
        if self._momentum != "own":
            self._settle_momentum()
        self._period.agreed(self._drift(own) if own else None)

    def _drift(self, own: list[Tensor]) -> float:
        """How far the replicas moved apart, over how far they moved together: the same on every rank."""
        apart = sum(
            float((mine - flat).double().square().sum())
            for mine, flat in zip(own, self._replica.flats, strict=True)
        )
        together = 0.0
        for flat, before in zip(self._replica.flats, self._before, strict=True):
            together += float((flat - before).double().square().sum())
            before.copy_(flat)
        mean = self.collective.all_reduce_(torch.tensor([apart], dtype=torch.float64), "avg").item()
        return mean / together if together else 0.0

    def _settle_momentum(self) -> None:
        """The optimizer's own averages of gradients, made to fit the averaged parameters."""
        kept = [
            value
            for state in self.optimizer.state.values()
            for value in state.values()
            if torch.is_tensor(value) and value.is_floating_point() and value.dim()
        ]
        if self._momentum == "average":
            average_together(self.collective, kept)
        else:
            for value in kept:
                value.zero_()

    def account(self) -> dict[str, Any]:
        return {"steps_between_agreements": self._period.lengths}

    def state_dict(self) -> dict[str, Any]:
        """The period's place; this rank's own parameters are the model's."""
        return {"period": self._period.state(), "before": [flat.clone() for flat in self._before]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._period.restore(state["period"])
        for flat, value in zip(self._before, state["before"], strict=True):
            flat.copy_(value)
