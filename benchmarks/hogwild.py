"""Hogwild of ours against PyTorch's own example of it: samples a second of all ranks together.

    ours         forward ─ backward (into flat memory) ─▶ one fused vector operation on the shared flat copy
    example      forward ─ backward ─▶ SGD over the shared parameters, tensor by tensor; its own DataLoader,
                 sample by sample (written from the public description of PyTorch's mnist_hogwild)
    example fed  the example's updates with our batches: what is left is the update alone

The same net (mnist_cnn_small), data (MNIST), batch (256 a rank), SGD (lr 0.01, momentum 0.9), one thread.
All sides run in the same processes and take turns; a round's time is the slowest rank's, from a barrier on.
The example's ranks each go through the whole set, ours through their shard: per step that is the same work.

    python benchmarks/hogwild.py [--ranks 1,2] [--rounds 11] [--json benchmarks/results/hogwild.json]
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from paceline import atomic
from paceline.comm.world import World, joined
from paceline.config import RunConfig
from paceline.data import Order, Prepared, Resident, prepare
from paceline.data.feed import Feed
from paceline.launch import local
from paceline.metrics import measure, resources
from paceline.metrics.clock import Meter
from paceline.registry import COLLECTIVES, MODELS, STRATEGIES
from paceline.train.optimize import make_optimizer

BATCH, STEPS, LR, MOMENTUM = 256, 3, 0.01, 0.9
SIDES = ("ours", "example", "example fed")


class Pictures(Dataset):
    """As torchvision's MNIST with ToTensor and Normalize, without the detour over PIL: sample by sample."""

    def __init__(self, data: Resident) -> None:
        self.part = data.train
        self.mean, self.std = data.prepared.mean[0], data.prepared.std[0]

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        return (self.part.images[at].float() / 255 - self.mean) / self.std, int(self.part.labels[at])


def loaded(data: Resident) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The example's batches, epoch after epoch."""
    while True:
        yield from DataLoader(Pictures(data), batch_size=BATCH, shuffle=True)


def fed(data: Resident, world: World) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Our batches, epoch after epoch."""
    feed = Feed(data.train, Order(len(data.train), 0))
    for epoch in range(10**6):
        for batch in feed.epoch(epoch, BATCH * world.size, [(world.rank, world.size)]):
            yield batch.images, batch.labels


def ours(world: World, data: Resident) -> Callable[[], None]:
    torch.manual_seed(0)
    model = MODELS.make("mnist_cnn_small", data.shape, data.classes)
    optimizer = make_optimizer(RunConfig(momentum=MOMENTUM), model.parameters(), LR)
    strategy = STRATEGIES.make("hogwild", world, COLLECTIVES.make("native", world), Meter())
    strategy.attach(model, optimizer)
    batches = fed(data, world)

    def round_() -> None:
        for _ in range(STEPS):
            images, labels = next(batches)
            cross_entropy(model(images), labels).backward()
            strategy.step()

    return round_


def example(model: nn.Module, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[], None]:
    """`model` was shared before the fork; every process has an optimizer of its own."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)

    def round_() -> None:
        for _ in range(STEPS):
            images, labels = next(batches)
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()

    return round_


def rank(prepared: Prepared, shared: list[nn.Module], rounds: int, folder: str, place) -> None:
    torch.set_num_threads(1)
    with joined(place, 60) as world:
        data = Resident(prepared)
        cases = {
            "ours": ours(world, data),
            "example": example(shared[0], loaded(data)),
            "example fed": example(shared[1], fed(data, world)),
        }
        for warm_up in cases.values():
            warm_up()
        found = measure.interleave(cases, rounds, before=lambda: world.group.barrier().wait())
    Path(folder, f"{place.rank}.json").write_text(json.dumps(found))


def measured(prepared: Prepared, ranks: int, rounds: int) -> dict:
    """Samples a second of each side, and ours over the others' within each round."""
    shared = [MODELS.make("mnist_cnn_small", prepared.shape, prepared.classes).share_memory() for _ in "ab"]
    with tempfile.TemporaryDirectory() as folder:
        function = functools.partial(rank, prepared, shared, rounds, folder)
        local.start(function, ranks, threads=1, deadline=900)
        told = [json.loads(Path(folder, f"{r}.json").read_text()) for r in range(ranks)]
    slowest = {
        side: [max(seconds) for seconds in zip(*(r[side] for r in told), strict=True)] for side in SIDES
    }
    samples = BATCH * STEPS * ranks
    return {
        "ranks": ranks,
        "samples_per_second": {
            side: measure.median_interval([samples / s for s in slowest[side]]).as_json() for side in SIDES
        },
        "ours_over": {
            side: measure.median_interval(measure.ratio(slowest[side], slowest["ours"])).as_json()
            for side in SIDES[1:]
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)  # no pool of threads: this process forks
    prepared = prepare(options.data)
    rows = [measured(prepared, int(ranks), options.rounds) for ranks in options.ranks.split(",")]
    for row in rows:
        for side, speed in row["samples_per_second"].items():
            over = row["ours_over"].get(side)
            said = (
                f"   ours is {over['median']:.2f} [{over['low']:.2f}, {over['high']:.2f}] times as fast"
                if over
                else ""
            )
            print(f"p = {row['ranks']}  {side:12} {speed['median']:8,.0f} samples/s{said}")
    if options.json:
        result = {
            "model": "mnist_cnn_small", "data": options.data, "batch": BATCH, "threads": 1,
            "machine": resources.machine(), "versions": resources.versions(), "commit": resources.commit(),
            "rounds": options.rounds, "rows": rows,
        }  # fmt: skip
        atomic.write_text(options.json, json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
