"""What a rank does in the tests of the library: a loop of its own, as a user would write it."""

from __future__ import annotations

import contextlib
import logging
import warnings

import torch
from torch.nn.functional import cross_entropy

from cases.strategies import model, sgd
from paceline.comm.world import World
from paceline.data.indexed import indexed
from paceline.errors import ConfigError
from paceline.library import JoinedWorld, _quiet
from paceline.registry import COLLECTIVES
from paceline.train.scatter import scatter_evaluate


def samples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, 6, generator=generator), torch.randint(3, (count,), generator=generator)


@contextlib.contextmanager
def here(world: World):
    joined = JoinedWorld(world)
    try:
        yield joined
    finally:
        joined.close()


def loop(world: World, strategy: str, count: int, batch: int, accumulate: int = 1, epochs: int = 2) -> dict:
    """Parameters, own samples seen, messages of each update and exact metrics after a loop of one's own."""
    with here(world) as joined:
        net = model(seed=1 + joined.rank)  # rank 0's count
        training = joined.wrap(net, sgd(net.parameters()), strategy=strategy, collective="native")
        seen, messages, before = 0, [], training.meter.calls
        for epoch in range(epochs):
            for some in joined.shard(samples(count), batch, epoch=epoch, accumulate=accumulate):
                features, labels = some
                with training.accumulating(some):
                    training.backward(cross_entropy(training(features), labels), some)
                seen += some.own
                if some.last:
                    training.step()
                    messages.append(training.meter.calls - before)
                    before = training.meter.calls
        found = training.evaluate(samples(count))
        return {
            "parameters": [p.detach().clone() for p in net.parameters()],
            "seen": seen, "messages": messages, "metrics": [found["loss"], found["accuracy"], found.count],
        }  # fmt: skip


def evaluated(world: World, count: int, batch: int = 4) -> list:
    """The same metrics in both ways; the second has the data on rank 0 alone."""
    net = model()
    own = {"distance": lambda outputs, labels: {"distance": (outputs - labels[:, None]).abs().sum()}}
    with here(world) as joined:
        both = [
            joined.evaluate(net, samples(count), batch=batch),
            joined.scatter_evaluate(net, samples(count) if joined.rank == 0 else None, batch=batch),
            joined.evaluate(net, samples(count), measure=own["distance"]),
        ]
    assert net.training
    return [(found.sums, found.count) for found in both]


def scattered_nothing(world: World, words: bool) -> None:
    data = indexed(list("ab")) if words else None
    scatter_evaluate(model(), data, world, COLLECTIVES.make("native", world))


def says(world: World) -> None:
    with here(world) as joined, _quiet(joined.rank):
        logging.basicConfig(format="%(message)s", force=True)
        logging.getLogger("mine").setLevel(logging.INFO)
        joined.print("once")
        joined.print_all("ä" * joined.rank, joined.rank)
        logging.getLogger("mine").info("information")
        logging.getLogger("mine").warning("warning")
        for _ in range(2):
            warnings.warn("of all")
            if joined.rank > 0:
                warnings.warn("of some", RuntimeWarning)


def refused_to_wrap(world: World, **named) -> str:
    """What is said of a strategy that a loop of one's own cannot have."""
    net = model()
    with here(world) as joined:
        try:
            joined.wrap(net, sgd(net.parameters()), **named)
        except ConfigError as error:
            return str(error)
    return "taken"
