"""What a rank does in the tests of ddp."""

from __future__ import annotations

import threading

import torch
from torch import nn

from cases.strategies import batch, model, plain, sgd
from paceline.comm.collectives import Collective
from paceline.comm.measured import Measured
from paceline.comm.world import World
from paceline.data.shard import seat_slice
from paceline.errors import PacelineError
from paceline.metrics.clock import Clock, Meter
from paceline.registry import COLLECTIVES, STRATEGIES
from paceline.train.step import Step

__all__ = ["plain"]


class Recorded(Collective):
    """Writes down every all-reduce: how many elements, of which type, on which thread."""

    def __init__(self, inner: Collective) -> None:
        self.rank, self.size, self.inner = inner.rank, inner.size, inner
        self.calls: list[tuple[int, str]] = []
        self.threads: set[str] = set()

    def all_reduce_(self, flat, operation="sum"):
        self.calls.append((flat.numel(), str(flat.dtype)))
        self.threads.add(threading.current_thread().name)
        return self.inner.all_reduce_(flat, operation)

    def broadcast_(self, flat, src=0):
        return self.inner.broadcast_(flat, src)


def made(world: World, net: nn.Module, optimizer=None, **options):
    """A strategy attached to `net`, with the record of its collectives."""
    recorded = Recorded(COLLECTIVES.make("native", world))
    meter = Meter()
    strategy = STRATEGIES.make("ddp", world, Measured(recorded, meter), meter, options=options)
    module = strategy.attach(net, optimizer or sgd(net.parameters()))
    return strategy, module, recorded, meter


def values(net: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in net.parameters()]


def windows(world: World, micro_batches: int, options: dict, clip: float | None = None) -> dict:
    """Four steps of 48 samples, then a short one of 7."""
    net = model()
    strategy, module, recorded, meter = made(world, net, **options)
    strategy.clip_norm = clip
    step = Step(module, strategy, Clock(), meter, micro_batches=micro_batches)
    calls = []
    for number, count in enumerate([48, 48, 48, 48, 7]):
        images, labels = batch(number, count)
        mine = seat_slice(count, *strategy.seat)
        before = len(recorded.calls)
        step(images[mine], labels[mine], count)
        calls.append(len(recorded.calls) - before)
    strategy.close()
    return {"parameters": values(net), "calls": calls, "threads": recorded.threads, "all": recorded.calls}


class Branches(nn.Module):
    """Rank 0 uses one branch, the others the other; `shared` is used twice, `never` by nobody."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.shared = nn.Linear(6, 6)
        self.left, self.right, self.never = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.wide = nn.Linear(3, 3).double()

    def forward(self, x, left: bool):
        x = torch.tanh(self.frozen(self.shared(torch.tanh(self.shared(x)))))
        return self.wide((self.left if left else self.right)(x).double())


def branches(world: World, options: dict, drop: bool) -> dict:
    """Three steps of a user's own loop, which may drop the gradients before each backward."""
    net = Branches()
    optimizer = sgd(net.parameters())
    strategy, module, _, _ = made(world, net, optimizer, **options)
    for number in range(3):
        images, labels = batch(number, 12)
        mine = seat_slice(12, *strategy.seat)
        if drop:
            optimizer.zero_grad(set_to_none=True)
        output = module(images[mine], world.rank == 0)
        strategy.backward(
            nn.functional.cross_entropy(output, labels[mine], reduction="sum") * world.size / 12
        )
        strategy.step()
    strategy.close()
    return {"parameters": values(net)}


def branches_alone(size: int) -> list[torch.Tensor]:
    """The same in one process. Unused parameters have gradient zero, as ddp promises."""
    net = Branches()
    optimizer = sgd(net.parameters())
    for number in range(3):
        images, labels = batch(number, 12)
        optimizer.zero_grad(set_to_none=False)
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        for rank in range(size):
            mine = seat_slice(12, rank, size)
            output = net(images[mine], rank == 0)
            (nn.functional.cross_entropy(output, labels[mine], reduction="sum") / 12).backward()
        optimizer.step()
    return values(net)


def uneven(world: World, shares: list[list[int]], options: dict) -> dict:
    """Rank r takes shares[r][i] samples in its step i, and leaves when its list ends."""
    net = model()
    strategy, module, _, _ = made(world, net, **options)
    done = 0
    with strategy.uneven():
        for number, count in enumerate(shares[world.rank]):
            images, labels = batch(10 * number + world.rank, count)
            strategy.backward(nn.functional.cross_entropy(module(images), labels))
            strategy.step(samples=count)
            done += 1
    strategy.close()
    return {"parameters": values(net), "done": done}


def uneven_alone(shares: list[list[int]]) -> list[torch.Tensor]:
    net = model()
    optimizer = sgd(net.parameters())
    for number in range(max(map(len, shares))):
        parts = [batch(10 * number + r, s[number]) for r, s in enumerate(shares) if number < len(s)]
        images, labels = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    return values(net)


def buffers(world: World, options: dict) -> dict:
    """BatchNorm's running mean of a rank after two steps, before and after synchronizing."""
    net = model(batch_norm=True)
    strategy, module, _, _ = made(world, net, **options)
    for number in range(2):
        images, labels = batch(10 * number + world.rank, 8)
        strategy.backward(nn.functional.cross_entropy(module(images), labels))
        strategy.step()
    before = [b.clone() for b in net.buffers()]
    strategy.synchronize()
    strategy.close()
    return {"before": before, "after": [b.clone() for b in net.buffers()]}


def opposed(world: World, compression: str, feedback: bool, steps: int) -> float:
    """Distance to the minimum of a sum of two losses whose gradients are 1,000 times larger than their mean."""
    net = nn.Linear(8, 1, bias=False)
    nn.init.zeros_(net.weight)
    strategy, _, recorded, _ = made(
        world, net, torch.optim.SGD(net.parameters(), 0.02), compression=compression
    )
    pull = torch.linspace(300.0, 1000.0, 8) * (1 if world.rank % 2 else -1)
    for _ in range(steps):
        strategy.backward((0.5 * (net.weight - 1).square() + pull * net.weight).sum())
        strategy.step()
        if not feedback:
            strategy.load_state_dict({})
    strategy.close()
    assert {kind for _, kind in recorded.calls} == {{"none": "torch.float32", "bf16": "torch.bfloat16",
                                                     "fp16": "torch.float16"}[compression]}  # fmt: skip
    return float((net.weight.detach() - 1).abs().max())


def resumed(world: World) -> tuple[list, list]:
    """Ten compressed steps in one go, and five, a state, and five more."""
    found = []
    for cut in (None, 5):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        strategy, _, _, _ = made(world, net, optimizer, compression="bf16")
        for number in range(10):
            if number == cut:
                kept, weights = strategy.state_dict(), net.state_dict()
                strategy.close()
                net = model(seed=9)
                net.load_state_dict(weights)
                strategy, _, _, _ = made(
                    world, net, torch.optim.SGD(net.parameters(), 0.1), compression="bf16"
                )
                strategy.load_state_dict(kept)
            images, labels = batch(10 * number + world.rank, 8)
            strategy.backward(nn.functional.cross_entropy(net(images), labels))
            strategy.step()
        found.append(values(net))
        strategy.close()
    return found[0], found[1]


def refusals(world: World) -> list[str]:
    """What is said of each misuse."""

    def unfrozen():
        net = model()
        net[0].weight.requires_grad_(False)
        strategy, _, _, _ = made(world, net)
        net[0].weight.requires_grad_(True)
        strategy.step()

    def foreign():
        net = model()
        made(world, net, torch.optim.SGD([*net.parameters(), nn.Parameter(torch.zeros(3))], 0.1))

    def second_backward():
        net = model()
        strategy, _, _, _ = made(world, net, overlap="on", bucket_mb=1e-5)
        loss = net(torch.ones(2, 6)).sum()
        try:
            strategy.backward(loss)
            strategy.backward(net(torch.ones(2, 6)).sum())
        finally:
            strategy.close()

    def samples_alone():
        made(world, model())[0].step(samples=3)

    def samples_missing():
        strategy = made(world, model())[0]
        with strategy.uneven():
            strategy.step()

    def other_state():
        made(world, model(), compression="bf16")[0].load_state_dict({"residual": [torch.zeros(3)]})

    def other_options():
        made(world, model(), overlap="of")

    lines = []
    for misuse in (
        unfrozen, foreign, second_backward, samples_alone, samples_missing, other_state, other_options,
    ):  # fmt: skip
        try:
            misuse()
        except PacelineError as error:
            lines.append(str(error))
    return lines
