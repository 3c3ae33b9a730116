"""Paceline for a loop of your own: `import paceline as pl`. Started alone, by `paceline run`, or by torchrun.

    with pl.join() as world:                                       who am I? started alone: the only one
        training = world.wrap(model, optimizer, strategy="ddp")    replicas aligned, gradients averaged
        for epoch in range(3):
            for batch in world.shard(train, batch=64, epoch=epoch):     this rank's samples of every step
                images, labels = batch
                training.backward(cross_entropy(training(images), labels), batch)
                training.step()
            world.print(training.evaluate(test)["accuracy"])       exact, written by rank 0

The loss is the mean over the batch, as always; `backward` weighs it by the batch, so that an update is that
of one process on the whole step, also where the last step is short. Cost: what the strategy sends; nothing
else communicates but `evaluate`, `total` and `print_all`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from paceline.comm.checked import checked
from paceline.comm.collectives import Collective
from paceline.comm.measured import Measured
from paceline.comm.ordered import texts
from paceline.comm.world import World, joined
from paceline.config.run import DEFAULT_COLLECTIVE, usual_collective
from paceline.data import Order, Resident, prepare
from paceline.data.indexed import indexed
from paceline.data.pieces import Piece, pieces
from paceline.errors import ConfigError
from paceline.launch import environment, local
from paceline.metrics.clock import Meter
from paceline.metrics.resources import threads_for
from paceline.registry import COLLECTIVES, STRATEGIES
from paceline.strategies import Strategy
from paceline.train.build import check_strategy
from paceline.train.evaluate import Measure, Totals, classification, totals
from paceline.train.scatter import scatter_evaluate

Named = str | Callable[..., Any]
"""A name, as on the command line, or a class of your own."""


class Batch(tuple[Any, ...]):
    """The fields of a batch: `images, labels = batch`.

    `own` is how many samples are this rank's own (0: it ran out and was lent some, which weigh nothing),
    `weight` what their mean loss weighs, and `last` says that this batch completes an update."""

    own: int
    weight: float
    last: bool

    @classmethod
    def of(cls, fields: tuple[Any, ...], piece: Piece, device: torch.device) -> Batch:
        """The fields on the rank's device."""
        batch = cls(field.to(device) if isinstance(field, Tensor) else field for field in fields)
        batch.own, batch.weight, batch.last = piece.own, piece.weight, piece.last
        return batch


@contextlib.contextmanager
def join(*, deadline: float = 60.0, threads: int | None = None) -> Iterator[JoinedWorld]:
    """Join the ranks that were started together; a process that was started alone is a world of one.

    `deadline`: seconds any wait for another rank may last. `threads` of this rank; under torchrun the
    default is the usable cores shared by the ranks of the node, otherwise what the process has already.
    Ranks other than 0 log from WARNING on only."""
    with contextlib.ExitStack() as stack:
        place = environment.current()
        if place is None:
            place = stack.enter_context(local.alone())
        elif place.launcher != "local":
            threads = threads or threads_for(place.local_size)
        if threads:
            torch.set_num_threads(threads)
        world = JoinedWorld(stack.enter_context(joined(place, deadline)))
        stack.callback(world.close)
        stack.enter_context(_quiet(world.rank))
        yield world


class JoinedWorld:
    """This rank among the others, and what it can do with them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rank, self.size, self.device = world.rank, world.size, world.device
        self._collective: Collective = COLLECTIVES.make("native", world)
        self._open = contextlib.ExitStack()
        self._open.callback(self._collective.close)

    def wrap(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        strategy: Named = "ddp",
        collective: Named | Collective | None = None,
        clip_norm: float | None = None,
        **options: Any,
    ) -> Training:
        """Align the replicas and let `strategy` (with its `options`) see to it that they learn together.

        `collective` None: the strategy's own if it has one, else the default of `collective()`. Random
        numbers drawn from here on (dropout) differ between ranks."""
        kind = STRATEGIES.load(strategy) if isinstance(strategy, str) else strategy
        collective = collective or usual_collective(kind)
        check_strategy(strategy, kind, collective, self.size)
        trainers = getattr(kind, "trainers", None)
        if trainers is not None and trainers(self.size, options) != self.size:
            raise ConfigError(
                f"strategy {strategy!r}: some of its ranks serve the others instead of training, which a "
                "loop of your own cannot; use `paceline train`, or here a strategy whose ranks all train"
            )
        meter = Meter()
        inner = collective if isinstance(collective, Collective) else self.collective(collective)
        made: Strategy = _made(STRATEGIES, strategy, options, self.world, Measured(inner, meter), meter)
        self._open.callback(made.close)
        if made.seats != [(self.rank, self.size)]:
            raise ConfigError(
                f"{strategy} with {options} deals finer than by ranks, which a loop of your own does not; "
                "leave the option out, or use `paceline train`"
            )
        made.clip_norm = clip_norm
        module = made.attach(model.to(self.device), optimizer)
        if self.rank:
            torch.manual_seed(self.world.own_seed(torch.initial_seed()))
        return Training(self, made, module, meter)

    def collective(self, name: Named | None = None, **options: Any) -> Collective:
        """A collective of these ranks, for your own use, for `wrap` or a SyncBatchNorm; closed at the end.

        The default is `auto`, measured once a machine; alone there is nothing to measure."""
        made = checked(_made(COLLECTIVES, name or DEFAULT_COLLECTIVE, options, self.world), self.world)
        self._open.callback(made.close)
        return made

    def shard(
        self, data: Any, batch: int = 64, *, epoch: int = 0, seed: int = 0, accumulate: int = 1
    ) -> Iterator[Batch]:
        """This rank's batches of one epoch: every sample exactly once over all ranks, as many on each rank.

        `data`: tensors, a part of one of our sets, a map-style data set or a DataLoader. The order depends on
        seed and epoch alone. `batch`: samples of a rank and backward pass; `accumulate`: passes an update."""
        found = indexed(data)
        order = Order(len(found), seed)
        dealt = list(pieces(order, epoch, batch, (self.rank, self.size), accumulate))
        for piece, fields in zip(dealt, found.batches(piece.indices for piece in dealt), strict=True):
            yield Batch.of(fields, piece, self.device)

    def evaluate(
        self, model: nn.Module, data: Any, *, measure: Measure = classification, batch: int = 512
    ) -> Totals:
        """Exact sums over all samples of `data`, each rank looking at its part; the same on every rank.

        `measure(outputs, *targets)` gives sums over a batch by name; the default is loss and accuracy."""
        return totals(model, indexed(data), self._collective, self.device, measure=measure, batch=batch)

    def scatter_evaluate(
        self, model: nn.Module, data: Any, *, measure: Measure = classification, batch: int = 512
    ) -> Totals:
        """The same where rank 0 alone has the data (the others give None): it sends each rank its part."""
        found = indexed(data) if self.rank == 0 else None
        return scatter_evaluate(model, found, self.world, self._collective, measure=measure, batch=batch)

    def total(self, *numbers: float) -> list[float]:
        """Each number summed over all ranks, in float64."""
        flat = torch.tensor(numbers, dtype=torch.float64)
        return list(self._collective.all_reduce_(flat, "sum").tolist())

    def print(self, *values: object, **options: Any) -> None:
        """print() on rank 0; the other ranks say nothing."""
        if self.rank == 0:
            print(*values, **{"flush": True, **options})

    def print_all(self, *values: object, sep: str = " ") -> None:
        """The line of every rank, in the order of the ranks, whatever launched them."""
        lines = texts(self._collective, sep.join(map(str, values)))
        self.print("\n".join(lines))

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._collective.barrier()

    def close(self) -> None:
        """Give back what the strategies and collectives own, the last first. Closing twice is harmless."""
        self._open.close()


class Training:
    """A model and its optimizer, learning together with those of the other ranks."""

    def __init__(
        self, joined_world: JoinedWorld, strategy: Strategy, module: nn.Module, meter: Meter
    ) -> None:
        self.strategy = strategy
        self.module = module
        self.meter = meter
        self._world = joined_world
        self._held = False

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The model's forward pass."""
        return self.module(*inputs, **named)

    def backward(self, loss: Tensor, batch: Batch | None = None) -> None:
        """The backward pass of a mean loss over `batch`; without a batch all ranks' losses weigh the same."""
        if batch is not None and not batch.last and not self._held:
            raise ConfigError(
                "this batch completes no update; run its forward and backward pass in "
                "`with training.accumulating(batch):` and step where batch.last is true"
            )
        self.strategy.backward(loss if batch is None or batch.weight == 1 else loss * batch.weight)

    @contextlib.contextmanager
    def accumulating(self, batch: Batch | None = None) -> Iterator[None]:
        """Forward and backward passes in here send nothing, unless `batch` is the last of its update."""
        if batch is not None and batch.last:
            yield
            return
        self._held = True
        try:
            with self.strategy.accumulating():
                yield
        finally:
            self._held = False

    def step(self) -> None:
        """One update of all replicas; the gradients are zero afterwards."""
        self.strategy.step()

    def synchronize(self) -> None:
        """Afterwards every rank holds the same parameters and buffers."""
        self.strategy.synchronize()

    def evaluate(self, data: Any, *, measure: Measure = classification, batch: int = 512) -> Totals:
        """synchronize(), then the exact sums over all of `data`."""
        self.synchronize()
        return self._world.evaluate(self.strategy.model, data, measure=measure, batch=batch)


def data_set(
    name: str, root: str | None = None, *, allow_unverified: bool = False, **options: Any
) -> Resident:
    """One of our data sets: `.train` and `.test` can be sharded and evaluated; `.shape` and `.classes`."""
    return Resident(prepare(name, root, allow_unverified, options))


def _made(registry: Any, what: Named, options: dict[str, Any], *arguments: Any) -> Any:
    """By name with its options checked, or from a class of your own."""
    return (
        registry.make(what, *arguments, options=options)
        if isinstance(what, str)
        else what(*arguments, **options)
    )


@contextlib.contextmanager
def _quiet(rank: int) -> Iterator[None]:
    """What is logged below WARNING is rank 0's to log."""
    before = logging.root.manager.disable
    if rank:
        logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)
