"""A rank dies or falls silent in the middle of a collective: who says what, and how soon?

    ranks 0…p-1   the same operation over and over, sizes drawn alike          (forked, shared memory)
    this command  after a random while SIGKILL or SIGSTOP to one of them ──► time until each survivor raises

A trial is good when every survivor raises one line that names the rank that was hit and the operation, within
1 s of a death or within the deadline + 1 s of a silence, and when /dev/shm holds none of our names more than
before.

    python benchmarks/faults.py [--trials 100] [--ranks 3] [--json benchmarks/results/faults.json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from paceline import atomic
from paceline.comm.world import World
from paceline.errors import PacelineError
from paceline.metrics import resources
from paceline.registry import COLLECTIVES

SHM = Path("/dev/shm")
GRACE = 1.0
SIZES = [0, 7, 1000, 30_000, 300_000]

OPERATIONS = {
    "all_reduce": lambda collective, own, shared: collective.all_reduce_(own),
    "all_reduce allocated": lambda collective, own, shared: collective.all_reduce_(shared),
    "broadcast": lambda collective, own, shared: collective.broadcast_(own, 1),
    "all_gather": lambda collective, own, shared: collective.all_gather(own),
    "reduce_scatter": lambda collective, own, shared: collective.reduce_scatter(own),
    "barrier": lambda collective, own, shared: collective.barrier(),
}
WORDS = {"all_reduce": "sum", "all_reduce allocated": "sum"}


def rank(
    number: int, ranks: int, name: str, operation: str, store_path: str, said: int, seed: int, deadline: float
) -> None:
    """Call the operation until it fails; say when, and what was said."""
    torch.set_num_threads(1)
    store = dist.FileStore(store_path, ranks)
    world = World(number, ranks, number, ranks, 0, 1, store, torch.device("cpu"), deadline, None)
    collective = COLLECTIVES.make(name, world)
    shared = collective.allocate(max(SIZES), torch.float32, torch.device("cpu"))
    own = torch.zeros(max(SIZES))
    draw = random.Random(seed)
    call = OPERATIONS[operation]
    os.write(said, b"r")
    try:
        while True:
            length = draw.choice(SIZES)
            call(collective, own[:length], shared[:length])
    except PacelineError as error:
        report = {"at": time.monotonic(), "kind": type(error).__name__, "text": str(error)}
    except BaseException as error:
        report = {"at": time.monotonic(), "kind": type(error).__name__, "text": repr(error)}
    os.write(said, json.dumps(report).encode() + b"\n")
    os._exit(0)


def trial(
    name: str, operation: str, hit: signal.Signals, ranks: int, draw: random.Random, deadline: float
) -> dict:
    """One group, one blow; what the survivors said and after how many seconds."""
    before = ours()
    victim = draw.randrange(ranks)
    with tempfile.TemporaryDirectory() as folder:
        seed = draw.random()
        ends = [os.pipe() for _ in range(ranks)]
        processes = []
        for number in range(ranks):
            process = os.fork()
            if process == 0:
                rank(
                    number,
                    ranks,
                    name,
                    operation,
                    f"{folder}/store",
                    ends[number][1],
                    int(seed * 1e9),
                    deadline,
                )
            processes.append(process)
        try:
            for number in range(ranks):
                if _read(ends[number][0], 1, 30) != b"r":
                    raise RuntimeError(f"rank {number} did not start")
            time.sleep(draw.uniform(0, 0.02))
            struck = time.monotonic()
            os.kill(processes[victim], hit)
            lines = [_line(ends[n][0], deadline + 10) for n in range(ranks) if n != victim]
            continued = hit == signal.SIGSTOP and _state(processes[victim]) != "T"
        finally:
            for process in processes:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            for end in ends:
                os.close(end[0])
                os.close(end[1])
    if continued:  # the kernel does that when whoever started this command exits in just this moment
        raise RuntimeError("somebody else continued the stopped rank; run this in a session of its own")
    left = sorted(ours() - before)
    return judged(lines, operation, victim, struck, deadline if hit == signal.SIGSTOP else 0.0, left)


def ours() -> set[str]:
    """Names in /dev/shm; those of other programs come and go."""
    return {path.name for path in SHM.glob("paceline*")}


def judged(lines: list, operation: str, victim: int, struck: float, wait: float, left: list) -> dict:
    """Good or not, and why not."""
    word = WORDS.get(operation, operation)
    problems = [f"left in /dev/shm: {left}"] if left else []
    seconds = []
    for line in lines:
        if line is None:
            problems.append("a survivor hung")
            continue
        seconds.append(line["at"] - struck)
        if not line["text"].startswith(f"rank {victim} ") or f"{word} " not in line["text"]:
            problems.append(f"said {line['text']!r}, but rank {victim} was hit in {word}")
        if seconds[-1] > wait + GRACE:
            problems.append(f"raised after {seconds[-1]:.2f} s")
    return {"seconds": seconds, "problems": problems}


def _state(process: int) -> str:
    """One letter of the kernel's: T is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def _read(end: int, count: int, timeout: float) -> bytes:
    ready, _, _ = select.select([end], [], [], timeout)
    return os.read(end, count) if ready else b""


def _line(end: int, timeout: float) -> dict | None:
    text = b""
    until = time.monotonic() + timeout
    while not text.endswith(b"\n"):
        got = _read(end, 65536, max(0.0, until - time.monotonic()))
        if not got:
            return None
        text += got
    return json.loads(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100, help="of each operation and signal")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--collective", default="shm")
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="some of them")
    parser.add_argument(
        "--deadline",
        type=float,
        default=1.0,
        help="of the ranks; the default of a run would be a minute a trial",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with contextlib.suppress(PermissionError):  # already the first of its group
        os.setsid()
    draw = random.Random(options.seed)
    rows = []
    for operation in options.operations.split(","):
        for hit in (signal.SIGKILL, signal.SIGSTOP):
            done = [
                trial(options.collective, operation, hit, options.ranks, draw, options.deadline)
                for _ in range(options.trials)
            ]
            seconds = [s for one in done for s in one["seconds"]]
            problems = [problem for one in done for problem in one["problems"]]
            rows.append(
                {
                    "operation": operation,
                    "signal": hit.name,
                    "trials": len(done),
                    "good": sum(not one["problems"] for one in done),
                    "median_seconds": statistics.median(seconds) if seconds else None,
                    "longest_seconds": max(seconds, default=None),
                    "problems": problems[:5],
                }
            )
            row = rows[-1]
            print(
                f"{operation:22} {hit.name}  {row['good']:3} of {row['trials']} good, survivors raised after "
                f"{row['median_seconds'] or 0:.3f} s (median), {row['longest_seconds'] or 0:.3f} s (longest)",
                *row["problems"],
                sep="\n    " if row["problems"] else "",
                flush=True,
            )
    if options.json:
        found = {
            "machine": resources.machine(),
            "commit": resources.commit(),
            "deadline": options.deadline,
            "rows": rows,
        }
        atomic.write_text(options.json, json.dumps(found, indent=1) + "\n")
    return int(any(row["good"] < row["trials"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
