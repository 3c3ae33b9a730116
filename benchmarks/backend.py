"""What stock DDP costs a step beyond the computation: over gloo, and over our backend.

    ranks 0, 1   one DDP module over each group, the same model and data; their steps take turns
    a step       barrier ─ forward and backward in no_sync, timed (the computation alone)
                 barrier ─ forward and backward with the exchange, timed

    beyond      the second minus the first: copying buckets, combining gradients, waiting for the other rank
    exposed     from the first layer's gradient, the last to be computed, to the return of backward
    call        all_reduce of as many numbers as the model has, ranks lined up before: no computation in it

Both sides start lined up, by our barrier. A row is the slowest rank's time, except `exchange`: that is what
was exposed on the rank that came last, which waits for nobody's computation.

    python benchmarks/backend.py [--rounds 200] [--ranks 2] [--batch 64] [--json FILE]
"""

from __future__ import annotations

import argparse
import functools
import pickle
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import paceline.backend  # noqa: F401 - registers the names
from paceline import atomic
from paceline.comm.world import joined
from paceline.launch import local
from paceline.launch.environment import Place
from paceline.metrics import measure, resources
from paceline.registry import MODELS

SIDES = ("gloo", "paceline")
DEADLINE = 120.0


class Side:
    """The same training step over one backend."""

    def __init__(self, backend: str, batch: int) -> None:
        torch.manual_seed(0)
        self.group = dist.new_group(backend=backend, timeout=timedelta(seconds=DEADLINE))
        model: nn.Module = MODELS.make("mnist_cnn", (1, 28, 28), 10)
        self.numbers = torch.zeros(sum(p.numel() for p in model.parameters()))
        next(model.parameters()).register_hook(self._note)
        self.module = DistributedDataParallel(model, process_group=self.group)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.images, self.labels = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
        self._computed = 0.0

    def computation(self) -> None:
        with self.module.no_sync():
            self._backward()

    def step(self) -> float:
        """Seconds of which nothing but the exchange is left to do."""
        self._backward()
        return time.perf_counter() - self._computed

    def call(self) -> None:
        dist.all_reduce(self.numbers, group=self.group)

    def clear(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _backward(self) -> None:
        nn.functional.cross_entropy(self.module(self.images), self.labels).backward()

    def _note(self, _gradient: torch.Tensor) -> None:
        self._computed = time.perf_counter()


def rank(rounds: int, batch: int, folder: str, place: Place) -> None:
    """Both sides in turns; this rank's seconds go to a file."""
    with joined(place, DEADLINE):
        sides = {name: Side(name, batch) for name in SIDES}
        line_up = functools.partial(dist.barrier, group=sides["paceline"].group)
        exposed: dict[str, list[float]] = {name: [] for name in SIDES}
        for _ in range(3):  # DDP sorts its buckets after the first step
            for side in sides.values():
                side.computation()
                side.clear()
                side.step()
        cases: dict[str, Any] = {}
        for name, side in sides.items():
            cases[f"computation {name}"] = side.computation
            cases[f"step {name}"] = functools.partial(_noted, side, exposed[name])
            cases[f"call {name}"] = side.call

        def before() -> None:
            for side in sides.values():
                side.clear()
            line_up()

        seconds: dict[str, Any] = dict(measure.interleave(cases, rounds, before=before))
        for name in SIDES:
            pairs = zip(seconds[f"step {name}"], seconds[f"computation {name}"], strict=True)
            seconds[f"beyond {name}"] = tuple(step - alone for step, alone in pairs)
            seconds[f"exposed {name}"] = seconds[f"exchange {name}"] = tuple(exposed[name])
    Path(folder, str(place.rank)).write_bytes(pickle.dumps(seconds))


def _noted(side: Side, exposed: list[float]) -> None:
    exposed.append(side.step())


def compare(ranks: int, rounds: int, batch: int) -> dict[str, Any]:
    """Medians over all rounds of all ranks, and the quotient of the two sides' medians."""
    with tempfile.TemporaryDirectory() as folder:
        local.start(functools.partial(rank, rounds, batch, folder), ranks, threads=1, deadline=600)
        found = [pickle.loads(Path(folder, str(number)).read_bytes()) for number in range(ranks)]
    rows: dict[str, Any] = {}
    for kind in ("computation", "step", "beyond", "exposed", "exchange", "call"):
        combine = min if kind == "exchange" else max
        seconds = {
            name: [
                combine(values) for values in zip(*(each[f"{kind} {name}"] for each in found), strict=True)
            ]
            for name in SIDES
        }
        medians = {name: measure.median_interval(values) for name, values in seconds.items()}
        times = medians["gloo"].median / medians["paceline"].median
        rows[kind] = {"medians": {name: each.as_json() for name, each in medians.items()}, "ratio": times}
        if kind in ("exposed", "exchange", "call"):  # always positive: quotients within a round make sense
            rows[kind]["ratios"] = measure.median_interval(
                measure.ratio(seconds["gloo"], seconds["paceline"])
            ).as_json()
    return rows


def table(rows: dict[str, Any]) -> None:
    print(f"{'':<14}{'gloo, µs (median, 95 %)':>34}{'paceline, µs':>34}{'quotient':>10}")
    for kind, row in rows.items():
        shown = [
            f"{each['median'] * 1e6:,.0f} [{each['low'] * 1e6:,.0f}, {each['high'] * 1e6:,.0f}]"
            for each in row["medians"].values()
        ]
        print(f"{kind:<14}{shown[0]:>34}{shown[1]:>34}{row['ratio']:>9.1f}×")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "backend.json")
    arguments = parser.parse_args()
    rows = compare(arguments.ranks, arguments.rounds, arguments.batch)
    table(rows)
    about: dict[str, Any] = {name: getattr(arguments, name) for name in ("rounds", "ranks", "batch")}
    about |= {"model": "mnist_cnn", "threads": 1, "command": " ".join(["python", *sys.argv])}
    about |= {"machine": resources.machine(), "versions": resources.versions(), "commit": resources.commit()}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(arguments.json, {"schema": 1, **about, "results": rows})


if __name__ == "__main__":
    main()
