"""Batches a second: the resident path against a torch DataLoader over the same pictures, one thread each.

    resident     Feed: one gather, one fused cast-and-normalise a batch
    DataLoader   a Dataset whose __getitem__ makes one float tensor and normalises it; shuffled; with 0 and
                 with 2 processes, the faster of the two is what we compare with

All sides give the same thing: float32 normalised pictures and int64 labels, in random order.
They take turns in every round; the clock starts when the first batches are there (processes started), so what
is compared is the steady state.

    python benchmarks/input.py [--rounds 9] [--json benchmarks/results/input.json] [--data-root DIR]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from paceline.data import Feed, Order, Resident, prepare
from paceline.errors import DataError
from paceline.metrics import measure, resources

PROCESSES = (0, 2)
EPOCHS = 4  # of the resident path a round, about as long as the DataLoader's part of it
SIDES = {"resident": "resident", **{f"loader_{n}": f"DataLoader, {n} processes" for n in PROCESSES}}


class Careful(Dataset):
    """What a careful student writes: uint8 in memory, one float tensor made and normalised a sample."""

    def __init__(self, part, mean, std):
        self.images, self.labels = part.images.clone(), part.labels.clone()
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i].to(torch.float32).div_(255)
        return (image - self.mean) / self.std, self.labels[i]


def resident_seconds(part, batch, first_epoch):
    feed = Feed(part, Order(len(part), 0))
    next(feed.epoch(first_epoch, batch))
    batches = 0
    start = time.perf_counter()
    for epoch in range(first_epoch, first_epoch + EPOCHS):
        for _ in feed.epoch(epoch, batch):
            batches += 1
    return (time.perf_counter() - start) / batches


def loader_seconds(dataset, batch, batches, processes):
    loader = DataLoader(dataset, batch, shuffle=True, num_workers=processes)
    stream = iter(loader)
    for _ in range(2 * processes + 2):  # started, and the prefetched ones are used up
        next(stream)
    start = time.perf_counter()
    for _ in range(batches):
        next(stream)
    return (time.perf_counter() - start) / batches


def compare(data, batch, rounds):
    """Interleaved rounds -> seconds a batch of each side."""
    part, prepared = data.train, data.prepared
    dataset = Careful(part, prepared.mean, prepared.std)
    few = min(len(part) // batch - 8, max(20, 12_800 // batch))  # DataLoader batches a round
    found = {side: [] for side in SIDES}
    for number in range(rounds):
        order = list(SIDES)[number % len(SIDES) :] + list(SIDES)[: number % len(SIDES)]
        for side in order:
            if side == "resident":
                found[side].append(resident_seconds(part, batch, number * EPOCHS))
            else:
                found[side].append(loader_seconds(dataset, batch, few, int(side.removeprefix("loader_"))))
    return found


def summary(found, batch):
    loaders = [side for side in SIDES if side != "resident"]
    best = min(loaders, key=lambda side: measure.median_interval(found[side]).median)
    rates = {
        side: measure.median_interval([1 / s for s in values]).as_json() for side, values in found.items()
    }
    ratio = measure.median_interval(measure.ratio(found[best], found["resident"])).as_json()
    return {
        "batch": batch,
        "batches_per_second": rates,
        "best_loader": best,
        "ratio": ratio,
        "seconds": found,
    }


def table(results):
    print(f"{'batch':>6}  {'side':<26}{'batches/s (median, 95 % interval)':>40}{'samples/s':>14}")
    for result in results:
        batch = result["batch"]
        for side, rate in result["batches_per_second"].items():
            samples = f"{rate['median'] * batch:,.0f}"
            print(f"{batch:>6}  {SIDES[side]:<26}{shown(rate, ',.0f'):>40}{samples:>14}")
        ratio, best = result["ratio"], SIDES[result["best_loader"]]
        print(f"{'':>6}  resident is {shown(ratio, '.1f')} times as fast as {best} (n = {ratio['n']})")


def shown(interval, form):
    return f"{interval['median']:{form}}  [{interval['low']:{form}}, {interval['high']:{form}}]"


def prepared_set(root):
    try:
        return prepare("mnist", root)
    except DataError:
        return prepare("synthetic", options={"train": 60_000, "test": 10_000})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=lambda text: [int(b) for b in text.split(",")], default=[64, 256])
    parser.add_argument("--data-root")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "input.json")
    arguments = parser.parse_args()
    warnings.filterwarnings("error")
    torch.set_num_threads(1)
    data = Resident(prepared_set(arguments.data_root))
    results = [summary(compare(data, b, arguments.rounds), b) for b in arguments.batches]
    print(f"{data.prepared.name}, {len(data.train):,} pictures {data.shape}, one thread a process")
    table(results)
    about = {"data": data.prepared.name, "threads": 1, "rounds": arguments.rounds}
    about |= {"machine": resources.machine(), "versions": resources.versions(), "commit": resources.commit()}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"schema": 1, **about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
