"""ResNet-18 on SVHN: memory by batch and accumulation, and samples a second with one and with two ranks.

    memory    a world a case: 2 steps, then peak RSS of each rank, and PSS of all ranks when the last forward
              pass of a step has ended (activations live, shared pages counted once)
    speed     one rank (1 thread), one rank (2 threads), two ranks (1 thread each), in turns, the same global
              batch: a world each time, one step to warm up, then the slowest rank's time of the next

Steps are those of `paceline train` (its data, feed, step and strategies), without the evaluation: 26,032
pictures through ResNet-18 take longer than everything here, and in batches of 512 more memory.

    python benchmarks/svhn_resnet18.py [--only memory|speed] [--rounds 6] [--data-root DIR] [--from FILE]
           [--json benchmarks/results/svhn-resnet18.json]  [--docs docs]   (tables and figures for the docs)
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from pathlib import Path

from paceline.bench.allreduce import start
from paceline.metrics import measure, resources
from paceline.report import formats, svg
from paceline.report.canvas import Drawing, colour, finish, marker, panel

BATCH = 32  # of a rank, as the brief has it
MICRO = (1, 2, 4, 8)
MEMORY = (
    [(1, "ddp", batch, 1) for batch in (4, 8, 16, 32, 64)]
    + [(1, "ddp", BATCH, micro) for micro in MICRO[1:]]
    + [(2, name, BATCH, micro) for name in ("ddp", "one_copy") for micro in MICRO]
)  # ranks, strategy, batch of a rank, micro-batches
SPEED = {"1 rank, 1 thread": (1, 1), "1 rank, 2 threads": (1, 2), "2 ranks, 1 thread each": (2, 1)}
EPOCHS, TRAIN = 30, 73_257


def run_rank(prepared, strategy_name, batch, micro, threads, steps, board, folder, place):
    """Some steps; seconds of each, and memory."""
    import torch

    from paceline.bench._step_memory import held
    from paceline.comm.measured import Measured
    from paceline.comm.world import joined
    from paceline.data.feed import Feed
    from paceline.data.resident import Resident
    from paceline.data.shard import Order
    from paceline.metrics.clock import Clock, Meter
    from paceline.registry import COLLECTIVES, MODELS, STRATEGIES
    from paceline.train.step import Step

    torch.set_num_threads(threads)
    board.sit(place.rank)
    with joined(place, 120.0) as world:
        meter = Meter()
        collective = Measured(COLLECTIVES.make("shm", world), meter)
        strategy = STRATEGIES.make(strategy_name, world, collective, meter)
        data = Resident(prepared)
        torch.manual_seed(0)
        model = MODELS.load("resnet18")(data.shape, data.classes)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, fused=True)
        module = strategy.attach(model, optimizer)
        live = []
        model.register_forward_hook(lambda *_: live.append(held()["Pss"]))
        step = Step(module, strategy, Clock(), meter, micro_batches=micro)
        batches = Feed(data.train, Order(len(data.train), 0)).epoch(0, batch * world.size, strategy.seats)
        seconds = []
        for _ in range(steps):
            images, labels, count = next(batches)
            board.wait()
            began = time.perf_counter()
            step(images, labels, count)
            seconds.append(time.perf_counter() - began)
        board.wait()
        found = {
            "seconds": seconds, "rss": resources.peak_memory_bytes(), "pss": max(live),
            "parameters": sum(p.nbytes for p in model.parameters()),
        }  # fmt: skip
        (folder / f"{place.rank}.json").write_text(json.dumps(found))
        strategy.close()
        collective.close()


def memory(prepared):
    """A row a case."""
    rows = []
    for ranks, name, batch, micro in MEMORY:
        rank = functools.partial(run_rank, prepared, name, batch, micro, 1, 2)
        found = start(rank, ranks, lambda _: None)
        rows.append(
            {
                "ranks": ranks, "strategy": name, "batch": batch, "micro_batches": micro,
                "peak_rss_a_rank": max(f["rss"] for f in found), "pss_a_node": sum(f["pss"] for f in found),
                "parameters": found[0]["parameters"],
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def speed(prepared, rounds):
    """Seconds of a step of BATCH samples over all ranks, by case, round by round."""
    samples = {name: [] for name in SPEED}
    for number in range(rounds):
        names = list(SPEED)
        for name in names[number % 3 :] + names[: number % 3]:
            ranks, threads = SPEED[name]
            rank = functools.partial(run_rank, prepared, "ddp", BATCH // ranks, 1, threads, 2)
            found = start(rank, ranks, lambda _: None)
            samples[name].append(max(f["seconds"][-1] for f in found))
            print(name, samples[name][-1], flush=True)
    return samples


def speed_rows(samples):
    """Samples a second, speed-up against one rank with one thread, and what 30 epochs would take."""
    rows, base = [], samples[next(iter(SPEED))]
    for name, seconds in samples.items():
        time_ = measure.median_interval(seconds)
        faster = measure.median_interval(measure.ratio(base, seconds))
        rows.append(
            {
                "case": name, "seconds": time_.as_json(), "samples_a_second": BATCH / time_.median,
                "times": faster.as_json(), "hours_of_30_epochs": EPOCHS * TRAIN / BATCH * time_.median / 3600,
            }
        )  # fmt: skip
    return rows


def table(heads, rows):
    """Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def memory_table(rows):
    heads = ["ranks", "strategy", "batch of a rank", "micro-batches", "samples at once", "peak RSS of a rank",
             "PSS of the node"]  # fmt: skip
    return table(
        heads,
        [
            (
                r["ranks"], r["strategy"], r["batch"], r["micro_batches"], r["batch"] // r["micro_batches"],
                formats.bytes_(r["peak_rss_a_rank"]), formats.bytes_(r["pss_a_node"]),
            )
            for r in rows
        ],
    )  # fmt: skip


def speed_table(rows):
    heads = ["", "time of a step (95 %)", "samples/s", "speed-up (95 %)", "30 epochs would take"]
    return table(
        heads,
        [
            (
                r["case"],
                f"{r['seconds']['median']:.2f} s [{r['seconds']['low']:.2f}, {r['seconds']['high']:.2f}]",
                f"{r['samples_a_second']:.1f}",
                f"{r['times']['median']:.2f} [{r['times']['low']:.2f}, {r['times']['high']:.2f}]",
                f"{r['hours_of_30_epochs']:.0f} h",
            )
            for r in rows
        ],
    )


def memory_figure(rows):
    figure, axes = panel("memory of the node (MB)", "samples at once (batch of a rank / micro-batches)")
    lines = {
        "1 rank, batches": [r for r in rows if r["ranks"] == 1 and r["micro_batches"] == 1],
        "1 rank, 32 accumulated": [r for r in rows if r["ranks"] == 1 and r["batch"] == BATCH],
        "2 ranks, ddp": [r for r in rows if r["ranks"] == 2 and r["strategy"] == "ddp"],
        "2 ranks, one_copy": [r for r in rows if r["ranks"] == 2 and r["strategy"] == "one_copy"],
    }
    for index, (label, line) in enumerate(lines.items()):
        points = sorted((r["batch"] // r["micro_batches"], r["pss_a_node"] / 1e6) for r in line)
        axes.plot(*zip(*points, strict=True), color=colour(index), marker=marker(index), markersize=5,
                  linewidth=1.5, label=label)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
    axes.set_ylim(bottom=0)
    told = "; ".join(
        f"{label} {formats.bytes_(max(r['pss_a_node'] for r in line))} at most"
        for label, line in lines.items()
    )
    return Drawing("svhn-resnet18-memory", "Memory by samples at once",
                   f"Memory of a node by samples in one backward pass, ResNet-18: {told}.", "",
                   finish(figure, axes, columns=2))  # fmt: skip


def speed_figure(rows):
    figure, axes = panel("speed-up", "")
    for place, row in enumerate(rows):
        times = row["times"]
        error = [[times["median"] - times["low"]], [times["high"] - times["median"]]]
        axes.bar(place, times["median"], 0.55, color=colour(place))
        axes.errorbar(place, times["median"], error, color=svg.INK, capsize=3, linewidth=1.1)
    axes.set_xticks(range(len(rows)), [row["case"].replace(", ", "\n") for row in rows])
    axes.axhline(1, color=svg.INK, linewidth=0.7, linestyle=(0, (2, 2)))
    told = "; ".join(f"{row['case']} {row['times']['median']:.2f}" for row in rows)
    return Drawing("svhn-resnet18-speed", "Speed-up at a global batch of 32",
                   f"Speed-up over one rank with one thread at a global batch of 32: {told}.", "",
                   finish(figure, axes))  # fmt: skip


def write_docs(docs, found):
    """Tables as parts to include, figures as SVG."""
    memory_rows, rows = found["memory"], speed_rows(found["speed"])
    (docs / "studies").mkdir(exist_ok=True)
    (docs / "studies/_svhn-resnet18-memory.md").write_text(memory_table(memory_rows) + "\n")
    (docs / "studies/_svhn-resnet18-speed.md").write_text(speed_table(rows) + "\n")
    for drawing in (memory_figure(memory_rows), speed_figure(rows)):
        (docs / f"images/{drawing.name}.svg").write_text(drawing.standalone + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("memory", "speed"))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--data-root")
    parser.add_argument(
        "--from", type=Path, dest="source", help="measured before; what --only names is renewed"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path)
    arguments = parser.parse_args()
    found = json.loads(arguments.source.read_text()) if arguments.source else {}
    if not arguments.source or arguments.only:
        import paceline.train.rank  # noqa: F401 - imports torch, once, before every fork
        from paceline.data import prepare

        prepared = prepare("svhn", arguments.data_root, True)
        found |= {"machine": resources.machine(), "versions": resources.versions()}
        found |= {"commit": resources.commit(), "data": prepared.notice or "official files"}
        if arguments.only != "speed":
            found["memory"] = memory(prepared)
        if arguments.only != "memory":
            found["speed"] = speed(prepared, arguments.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if "memory" in found:
        print(memory_table(found["memory"]))
    if "speed" in found:
        print(speed_table(speed_rows(found["speed"])))
    if arguments.docs:
        write_docs(arguments.docs, found)


if __name__ == "__main__":
    main()
