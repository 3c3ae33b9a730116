"""What a rank does in the tests of strategies whose ranks do not wait for each other."""

from __future__ import annotations

import time

import torch
from torch import nn

from cases.strategies import batch, model, sgd
from paceline.comm.world import World
from paceline.data.shard import seats_slice
from paceline.errors import ConfigError
from paceline.metrics.clock import Clock, Meter
from paceline.registry import COLLECTIVES, STRATEGIES
from paceline.train.step import Step


def refused(world: World, name: str, options: dict) -> str:
    """What is said of options that cannot be."""
    collective = COLLECTIVES.make("native", world)
    collective.barrier()  # or a rank that leaves at once ends the world while others still join it
    try:
        STRATEGIES.make(name, world, collective, Meter(), options=options)
    except ConfigError as error:
        return str(error)
    return "taken"


def steps(
    world: World,
    name: str,
    options: dict,
    count: int,
    pause: list[float],
    collective: str = "native",
    clip: float | None = None,
) -> dict:
    """Epochs of `count` steps; this rank sleeps pause[rank] before each. What it did and what was counted."""
    meter = Meter()
    strategy = STRATEGIES.make(name, world, COLLECTIVES.make(collective, world), meter, options=options)
    strategy.clip_norm = clip
    net = model()
    own = sgd(net.parameters())
    step = Step(strategy.attach(net, own), strategy, Clock(), meter)
    taken = []

    def loop(serve=None) -> None:
        if serve is not None:
            serve()
            return
        for number, seats in strategy.turns(count):
            time.sleep(pause[world.rank])
            images, labels = batch(number, 12)
            mine = seats_slice(12, seats)
            step(images[mine], labels[mine], 12)
            taken.append((number, *seats[0]))

    strategy.run(loop)
    strategy.synchronize()
    account = strategy.account()
    strategy.close()
    momentum = own.param_groups[0]["momentum"]
    flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    return {"taken": taken, "account": account, "bytes": meter.bytes, "flat": flat, "momentum": momentum}


def seen(world: World, lock: bool) -> list[float]:
    """Rank 0 alone updates; every rank tells the parameter it reads afterwards."""
    strategy = STRATEGIES.make(
        "hogwild", world, COLLECTIVES.make("native", world), Meter(), options={"lock": lock}
    )
    net = nn.Linear(3, 1, bias=False)
    strategy.attach(net, torch.optim.SGD(net.parameters(), 1.0))
    before = net.weight.detach().clone()
    strategy.collective.barrier()
    if world.rank == 0:
        net.weight.grad.fill_(0.5)
        strategy.step()
    strategy.collective.barrier()
    change = (before - net.weight.detach()).flatten().tolist()
    strategy.close()
    return change
