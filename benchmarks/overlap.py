"""Does it pay to start a bucket during backward, when the collective needs a thread to run meanwhile?

    off   forward ─ backward ─────────────── all-reduce ─ update
    on    forward ─ backward ─┬───┬───┬───── wait ─────── update
                   a thread   └ all-reduces, on the same cores

Strategy ddp with `overlap` off and on, one thread a rank; both sides keep a model of their own in the same
ranks and take turns, so that they meet the same quiet and busy minutes.

    python benchmarks/overlap.py [--ranks 2] [--rounds 15] [--json benchmarks/results/overlap.json]
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from pathlib import Path

import torch

from paceline import atomic
from paceline.comm.world import World, joined
from paceline.launch import local
from paceline.metrics import measure, resources
from paceline.metrics.clock import Meter
from paceline.registry import COLLECTIVES, MODELS, STRATEGIES

COLLECTIVE_NAMES = ("shm", "native")
# name: shape, micro-batch of a rank, bucket in MB, steps a round
MODELS_MEASURED = {
    "mnist_cnn": ((1, 28, 28), 32, 0.04, 5),
    "resnet18": ((3, 32, 32), 4, 8.0, 1),
}


def side(world: World, name: str, collective_name: str, overlap: str):
    """A function that makes the steps of one round."""
    shape, batch, bucket_mb, steps = MODELS_MEASURED[name]
    torch.manual_seed(0)
    model = MODELS.make(name, shape, 10)
    collective = COLLECTIVES.make(collective_name, world)
    options = {"overlap": overlap, "bucket_mb": bucket_mb}
    strategy = STRATEGIES.make("ddp", world, collective, Meter(), options=options)
    module = strategy.attach(model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
    images = torch.randn(batch, *shape)
    labels = torch.randint(0, 10, (batch,))

    def round_() -> None:
        for _ in range(steps):
            torch.nn.functional.cross_entropy(module(images), labels).backward()
            strategy.step()

    return round_


def rank(rounds: int, folder: str, place) -> None:
    torch.set_num_threads(1)
    found = {}
    with joined(place, 60) as world:
        for name in MODELS_MEASURED:
            cases = {
                f"{collective} {overlap}": side(world, name, collective, overlap)
                for collective in COLLECTIVE_NAMES
                for overlap in ("off", "on")
            }
            for warm_up in cases.values():
                warm_up()
            found[name] = measure.interleave(cases, rounds, before=lambda: world.group.barrier().wait())
    Path(folder, f"{place.rank}.json").write_text(json.dumps(found))


def row(name: str, collective: str, seconds: dict) -> dict:
    """Steps in milliseconds, and on over off within each round."""
    steps = MODELS_MEASURED[name][3]
    off, on = (seconds[f"{collective} {overlap}"] for overlap in ("off", "on"))
    return {
        "model": name,
        "collective": collective,
        "off_ms": measure.median_interval([1000 * s / steps for s in off]).as_json(),
        "on_ms": measure.median_interval([1000 * s / steps for s in on]).as_json(),
        "on_over_off": measure.median_interval(measure.ratio(on, off)).as_json(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        local.start(functools.partial(rank, options.rounds, folder), options.ranks, threads=1, deadline=1800)
        ranks = [json.loads(Path(folder, f"{r}.json").read_text()) for r in range(options.ranks)]
    rows = []
    for name, cases in ranks[0].items():
        slowest = {
            case: [max(r[name][case][i] for r in ranks) for i in range(options.rounds)] for case in cases
        }
        rows += [row(name, collective, slowest) for collective in COLLECTIVE_NAMES]
    for each in rows:
        ratio = each["on_over_off"]
        print(
            f"{each['model']:10} {each['collective']:7} off {each['off_ms']['median']:8.2f} ms   "
            f"on {each['on_ms']['median']:8.2f} ms   on/off {ratio['median']:.3f} "
            f"[{ratio['low']:.3f}, {ratio['high']:.3f}]"
        )
    if options.json:
        result = {
            "machine": resources.machine(),
            "commit": resources.commit(),
            "ranks": options.ranks,
            "rows": rows,
        }
        atomic.write_text(options.json, json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
