"""What a rank does in the contract tests of the strategies: a few steps, then it tells all."""

from __future__ import annotations

import torch
from torch import nn

from paceline.comm.collectives import Collective
from paceline.comm.measured import Measured
from paceline.comm.world import World
from paceline.data.shard import seat_slice
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
) -> dict:
    """len(counts) steps of counts[i] samples each; returns parameters, buffers, losses and counts."""
    meter, clock = Meter(), Clock()
    collective = Measured(COLLECTIVES.make("native", world), meter)
    strategy = STRATEGIES.make(name, world, collective, meter, options=options)
    net = model(batch_norm=batch_norm, seed=1 + world.rank * different_starts)
    module = strategy.attach(net, sgd(net.parameters()))
    attached = meter.calls
    step = Step(module, strategy, clock, meter, micro_batches=micro_batches)
    losses, messages = [], []
    for number, count in enumerate(counts):
        images, labels = batch(number, count)
        mine = seat_slice(count, *strategy.seat)
        before = meter.calls
        losses.append(step(images[mine], labels[mine], count))
        messages.append(meter.calls - before)
    strategy.synchronize()
    state = strategy.state_dict()
    strategy.load_state_dict(state)
    strategy.close()
    strategy.close()
    return {
        "parameters": [p.detach().clone() for p in net.parameters()],
        "buffers": [b.clone() for b in net.buffers()],
        "losses": losses,
        "messages": messages,
        "attached": attached,
        "exposed": meter.seconds,
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
        mine = seat_slice(len(images), *strategy.seat)
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
