"""What a rank does in the tests of one_copy."""

from __future__ import annotations

import torch
from torch import nn

from cases.strategies import batch, model
from paceline.comm.world import World
from paceline.data.shard import seats_slice
from paceline.errors import ConfigError
from paceline.metrics.clock import Clock, Meter
from paceline.registry import COLLECTIVES, STRATEGIES
from paceline.train.step import Step


class Scaled(torch.optim.Optimizer):
    """An optimizer of somebody's own: element by element, but who knows?"""

    def __init__(self, parameters) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * parameter.grad


def grouped(net: nn.Module, name: str, **options) -> torch.optim.Optimizer:
    """Weight decay for matrices alone."""
    matrices = [p for p in net.parameters() if p.dim() > 1]
    vectors = [p for p in net.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0, "lr": 0.02}]
    return getattr(torch.optim, name)(groups, lr=0.05, **options)


def make(world: World, collective: str = "shm", **options):
    return STRATEGIES.make("one_copy", world, COLLECTIVES.make(collective, world), Meter(), options=options)


def groups(world: World, collective: str, optimizer: str, options: dict, steps: int) -> tuple[list, int, int]:
    """Some steps; the parameters, and how many elements of state this rank keeps."""
    net = model()
    own = grouped(net, optimizer, **options)
    strategy = make(world, collective)
    step = Step(strategy.attach(net, own), strategy, Clock(), Meter())
    for number in range(steps):
        images, labels = batch(number, 12)
        mine = seats_slice(12, strategy.seats)
        step(images[mine], labels[mine], 12)
    state = sum(t.numel() for s in own.state.values() for t in s.values() if torch.is_tensor(t) and t.dim())
    slices = sum(p.numel() for group in own.param_groups for p in group["params"])
    strategy.close()
    return [p.detach().clone() for p in net.parameters()], state, slices


def alone(optimizer: str, options: dict, steps: int) -> list[torch.Tensor]:
    """The oracle: one process, no Paceline."""
    net = model()
    own = grouped(net, optimizer, **options)
    for number in range(steps):
        images, labels = batch(number, 12)
        own.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        own.step()
    return [p.detach() for p in net.parameters()]


def physical(world: World) -> list[float]:
    """Rank 0 writes into a parameter and into a frozen one; what this rank reads then."""
    net = model()
    frozen = next(net.parameters())
    frozen.requires_grad_(False)
    strategy = make(world)
    strategy.attach(net, torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1))
    last = list(net.parameters())[-1]
    if world.rank == 0:
        with torch.no_grad():
            frozen.fill_(5.0)
            last.fill_(7.0)
    strategy.collective.barrier()
    return [float(frozen.detach().mean()), float(last.detach().mean())]


def conv_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(6 * 36, 20), nn.Dropout(0.5),
        nn.Tanh(), nn.Linear(20, 5),
    )  # fmt: skip


def deterministic(world: World, collective: str, counts: list[int], optimizer: str) -> tuple[list, float]:
    """Steps with dropout; parameters and the sum of all ranks' losses."""
    net = conv_model()
    torch.manual_seed(42)  # the run's seed
    strategy = make(world, collective, deterministic=True, shards=6)
    own = getattr(torch.optim, optimizer)(net.parameters(), 0.05, weight_decay=0.01, fused=True)
    step = Step(strategy.attach(net, own), strategy, Clock(), Meter(), micro_batches=2)
    torch.manual_seed(1000 + world.rank)  # what must not matter
    for number, count in enumerate(counts):
        generator = torch.Generator().manual_seed(number)
        images = torch.randn(count, 1, 8, 8, generator=generator)
        labels = torch.randint(5, (count,), generator=generator)
        mine = seats_slice(count, strategy.seats)
        step(images[mine], labels[mine], count)
    return [p.detach().clone() for p in net.parameters()], float(torch.rand(1))


def refused(world: World, case: str) -> str:
    """What is said."""
    net = model(batch_norm=case == "norm")
    options = {"deterministic": True} if case == "norm" else {}
    if case == "trusted":
        options = {"element_wise": True}
    if case == "shards":
        options = {"deterministic": True, "shards": 1}
    makes = {
        "lbfgs": lambda: torch.optim.LBFGS(net.parameters()),
        "own": lambda: Scaled(net.parameters()),
        "trusted": lambda: Scaled(net.parameters()),
    }
    own = makes.get(case, lambda: torch.optim.SGD(net.parameters(), 0.1))()
    if case == "late":
        net(torch.zeros(1, 6)).sum().backward()
        own = torch.optim.Adam(net.parameters())
        own.step()
    try:
        make(world, "native", **options).attach(net, own)
    except ConfigError as error:
        return str(error)
    return "taken"


def clipped(world: World, name: str) -> list[torch.Tensor]:
    """A step whose gradient is cut to a tenth."""
    net = model()
    strategy = STRATEGIES.make(name, world, COLLECTIVES.make("native", world), Meter())
    strategy.clip_norm = 0.1
    step = Step(strategy.attach(net, torch.optim.SGD(net.parameters(), 1.0)), strategy, Clock(), Meter())
    images, labels = batch(0, 12)
    mine = seats_slice(12, strategy.seats)
    step(images[mine], labels[mine], 12)
    return [p.detach().clone() for p in net.parameters()]


def own_loop(world: World) -> list[torch.Tensor]:
    """A loop that drops the gradients in every way there is."""
    net = model()
    own = torch.optim.SGD(net.parameters(), 0.1)
    strategy = make(world)
    strategy.attach(net, own)
    for number in range(4):
        images, labels = batch(number, 12)
        mine = seats_slice(12, strategy.seats)
        (own if number % 2 else net).zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(images[mine]), labels[mine]).backward()
        strategy.step()
    return [p.detach().clone() for p in net.parameters()]
