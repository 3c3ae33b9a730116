"""From the command to the first collective: our local start against torchrun and torch's mp.spawn.

    command ──import torch──fork──join gloo──all_reduce of 1,000 floats──► stamp ──tear down──► command over
              (torchrun and mp.spawn import torch once more in every rank)

Each side is a whole command from the shell, one thread a rank, gloo over loopback. Every rank writes the
monotonic clock into a file when its first all_reduce is done; the last of them counts. The sides take turns.

    python benchmarks/launch.py [--rounds 7] [--ranks 2,8] [--json benchmarks/results/launch.json]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paceline import atomic
from paceline.metrics import measure, resources

# What every rank of every side does once it has joined.
COLLECTIVE = """
def first_collective(rank):
    dist.all_reduce(torch.ones(1000))
    open(f"{sys.argv[1]}/{rank}", "w").write(repr(time.monotonic()))
    dist.destroy_process_group()
"""
IMPORTS = "import os, sys, time\nimport torch\nimport torch.distributed as dist\n"

OURS = f"""{IMPORTS}
from paceline.launch.local import start
{COLLECTIVE}
def function(place):
    store = dist.TCPStore(place.address, place.port, place.size, is_master=place.rank == 0,
                          wait_for_workers=False, master_listen_fd=place.listen_fd)
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.size)
    first_collective(place.rank)

start(function, int(sys.argv[2]), threads=1, deadline=60)
"""
TORCHRUN = f"""{IMPORTS}{COLLECTIVE}
dist.init_process_group("gloo")
first_collective(dist.get_rank())
"""
SPAWN = f"""{IMPORTS}
import socket
{COLLECTIVE}
def function(rank, ranks, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    first_collective(rank)

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(function, (int(sys.argv[2]), port), int(sys.argv[2]))
"""
SIDES = {"paceline": OURS, "torchrun": TORCHRUN, "mp.spawn": SPAWN}
MOMENTS = {"first_collective": "to the first collective", "whole": "whole command"}


def command(side: str, script: Path, stamps: Path, ranks: int) -> list[str]:
    python = [sys.executable, str(script), str(stamps), str(ranks)]
    if side != "torchrun":
        return python
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    return [sys.executable, *torchrun, *python[1:]]


def run_once(side: str, folder: Path, ranks: int) -> float:
    """One command; seconds to the last rank's stamp."""
    script = folder / f"side_{list(SIDES).index(side)}.py"  # not a name that hides a package
    script.write_text(SIDES[side])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory(dir=folder) as stamps:
        start = time.monotonic()
        done = subprocess.run(
            command(side, script, Path(stamps), ranks),
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        times = [float(path.read_text()) for path in Path(stamps).iterdir()]
    if done.returncode != 0 or len(times) != ranks:
        raise SystemExit(f"{side} with {ranks} ranks failed (exit code {done.returncode}):\n{done.stderr}")
    return max(times) - start


def compare(ranks: int, rounds: int, folder: Path) -> dict:
    """All sides, interleaved; medians and ratios for both moments."""
    first: dict[str, list[float]] = {side: [] for side in SIDES}

    def case(side: str):
        return lambda: first[side].append(run_once(side, folder, ranks))

    whole = measure.interleave({side: case(side) for side in SIDES}, rounds)
    found = {"ranks": ranks}
    for moment, seconds in (("first_collective", first), ("whole", whole)):
        found[moment] = {
            "seconds": seconds,
            "medians": {side: measure.median_interval(seconds[side]).as_json() for side in SIDES},
            "times_as_fast_as": {
                side: measure.median_interval(measure.ratio(seconds[side], seconds["paceline"])).as_json()
                for side in SIDES
                if side != "paceline"
            },
        }
    return found


def table(results: list[dict]) -> None:
    print(f"{'ranks':>5}  {'moment':<24}{'side':<10}{'seconds (median, 95 %)':>26}{'paceline is faster':>26}")
    for result in results:
        for moment, title in MOMENTS.items():
            for side, median in result[moment]["medians"].items():
                ratio = result[moment]["times_as_fast_as"].get(side)
                faster = shown(ratio, ".1f") + " ×" if ratio else ""
                print(f"{result['ranks']:>5}  {title:<24}{side:<10}{shown(median, '.2f'):>26}{faster:>26}")


def shown(interval: dict, form: str) -> str:
    return f"{interval['median']:{form}} [{interval['low']:{form}}, {interval['high']:{form}}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=lambda text: [int(p) for p in text.split(",")], default=[2, 8])
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "launch.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [compare(ranks, arguments.rounds, Path(folder)) for ranks in arguments.ranks]
    table(results)
    about = {"rounds": arguments.rounds, "command": " ".join(["python", *sys.argv])}
    about |= {"machine": resources.machine(), "versions": resources.versions(), "commit": resources.commit()}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(arguments.json, {"schema": 1, **about, "results": results})
    print(f"{arguments.rounds} rounds; {arguments.json}")


if __name__ == "__main__":
    main()
