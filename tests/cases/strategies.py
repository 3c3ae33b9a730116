"""What a rank does in the contract tests of the strategies: a few steps, then it tells all."""

from __future__ import annotations

import copy

import torch
from torch import nn

from paceline.comm.collectives import Collective
from paceline.comm.measured import Measured
from paceline.comm.world import World
from paceline.data.shard import seats_slice
from paceline.metrics.clock import Clock, Meter
from paceline.registry import COLLECTIVES, STRATEGIES
from paceline.train.step import Step

FEATURES, CLASSES = 6, 3


def model(*, batch_norm: bool = False, seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    norm = [nn.BatchNorm1d(8)] if batch_norm else []
    return nn.Sequential(nn.Linear(FEATURES, 8), *norm, nn.Tanh(), nn.Linear(8, CLASSES))


def batch(step: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of one whole step, the same for everybody."""
    generator = torch.Generator().manual_seed(100 + step)
    images = torch.randn(count, FEATURES, generator=generator)
    return images, torch.randint(CLASSES, (count,), generator=generator)


def sgd(parameters) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.01)


def train(
    world: World,
    name: str,
    counts: list[int],
    micro_batches: int = 1,
    batch_norm: bool = False,
    different_starts: bool = False,
    options: dict | None = None,
    pause_at: int | None = None,
    resume: bool = False,
) -> dict:
    """len(counts) steps of counts[i] samples each; returns parameters, buffers, losses and counts.

    `pause_at`: after that many steps replicas agree; `resume`: there, everything but the saved state is made
    anew."""
    meter, clock = Meter(), Clock()
    collective = Measured(COLLECTIVES.make("native", world), meter)

    def made(seed: int):
        strategy = STRATEGIES.make(name, world, collective, meter, options=options)
        net = model(batch_norm=batch_norm, seed=seed)
        own = sgd(net.parameters())
        return strategy, net, own, strategy.attach(net, own)

    def some_steps(first: int, last: int, strategy, module) -> None:
        step = Step(module, strategy, clock, meter, micro_batches=micro_batches)

        def loop(serve=None) -> None:
            if serve is not None:
                serve()
                return
            for at, seats in strategy.turns(last - first):
                number = first + at
                images, labels = batch(number, counts[number])
                mine = seats_slice(counts[number], seats)
                before = meter.calls
                losses.append(step(images[mine], labels[mine], counts[number]))
                messages.append(meter.calls - before)

        strategy.run(loop)
        strategy.synchronize()

    losses: list[float] = []
    messages: list[int] = []
    strategy, net, own, module = made(1 + world.rank * different_starts)
    attached = meter.calls
    some_steps(0, len(counts) if pause_at is None else pause_at, strategy, module)
    if resume:
        kept = copy.deepcopy((strategy.state_dict(), net.state_dict(), own.state_dict()))
        strategy.close()
        strategy, net, own, module = made(99)
        with torch.no_grad():  # into the memory that the strategy has laid out
            net.load_state_dict(kept[1])
        own.load_state_dict(kept[2])
        strategy.load_state_dict(kept[0])
    if pause_at is not None:
        some_steps(pause_at, len(counts), strategy, module)
    state = strategy.state_dict()
    strategy.load_state_dict(state)
    account = strategy.account()
    strategy.close()
    strategy.close()
    return {
        "parameters": [p.detach().clone() for p in net.parameters()],
        "buffers": [b.clone() for b in net.buffers()],
        "losses": losses,
        "messages": messages,
        "attached": attached,
        "exposed": meter.seconds,
        "bytes": meter.bytes,
        "account": account,
    }


def plain(counts: list[int]) -> tuple[list[torch.Tensor], list[float]]:
    """The same steps as any PyTorch tutorial makes them; the oracle."""
    net = model()
    optimizer = sgd(net.parameters())
    losses = []
    for number, count in enumerate(counts):
        images, labels = batch(number, count)
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() * count)
    return [p.detach() for p in net.parameters()], losses


class Counted(Collective):
    """Writes down the name of every call."""

    def __init__(self, inner: Collective) -> None:
        self.rank, self.size, self.inner = inner.rank, inner.size, inner
        self.calls: list[str] = []

    def all_reduce_(self, flat, operation="sum"):
        self.calls.append("all_reduce")
        return self.inner.all_reduce_(flat, operation)

    def broadcast_(self, flat, src=0):
        self.calls.append("broadcast")
        return self.inner.broadcast_(flat, src)

    def reduce_scatter(self, flat, operation="sum"):
        self.calls.append("reduce_scatter")
        return self.inner.reduce_scatter(flat, operation)

    def barrier(self):
        self.calls.append("barrier")
        self.inner.barrier()


def accumulated(world: World, name: str, k: int, windows: int, own_loop: bool) -> tuple[list, list]:
    """Windows of k micro-batches of 4 samples a rank; parameters, and the calls of each window."""
    counted = Counted(COLLECTIVES.make("shm", world))
    strategy = STRATEGIES.make(name, world, counted, Meter())
    net = model()
    module = strategy.attach(net, sgd(net.parameters()))
    step = Step(module, strategy, Clock(), Meter(), micro_batches=k)
    calls = []
    for number in range(windows):
        images, labels = batch(number, 4 * k * world.size)
        mine = seats_slice(len(images), strategy.seats)
        counted.calls.clear()
        if own_loop:
            _own_window(strategy, module, images[mine].chunk(k), labels[mine].chunk(k))
        else:
            step(images[mine], labels[mine], len(images))
        calls.append(list(counted.calls))
    strategy.close()
    return [p.detach().clone() for p in net.parameters()], calls


def _own_window(strategy, module, images, labels) -> None:
    """As in a user's own loop: mean losses, divided by how many there are."""
    losses = (
        nn.functional.cross_entropy(module(x), y) / len(images) for x, y in zip(images, labels, strict=True)
    )
    with strategy.accumulating():
        for _ in range(len(images) - 1):
            strategy.backward(next(losses))
    strategy.backward(next(losses))
    strategy.step()
