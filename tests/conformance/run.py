"""PyTorch's own tests for process groups, run against gloo and against our backend: what passes and what fails.

    this process   imports torch and its tests once ─► per test and backend: forks the ranks, waits, counts
    a rank         torch's own set-up; where it asks for gloo it gets ours, and is told that it is gloo

The tests come inside the torch wheel (torch/testing/_internal/distributed/distributed_test.py). Told that it is
gloo, a test that skips itself for other backends runs.

    python tests/conformance/run.py [--match REGEX] [--backends gloo,paceline] [--ranks 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import types
import unittest
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

RANKS, DEADLINE = 3, 90.0
PASSED, SKIPPED, FAILED, HUNG = "passed", "skipped", "failed", "hung"


def prepare(ranks: int, folder: str) -> Any:
    """Torch's test module, which reads its settings from the environment when it is imported."""
    (Path(folder) / "barrier").mkdir(exist_ok=True)
    os.environ.update(
        BACKEND="gloo",
        WORLD_SIZE=str(ranks),
        TEMP_DIR=folder,
        MASTER_ADDR="127.0.0.1",
        GLOO_SOCKET_IFNAME="lo",
        OMP_NUM_THREADS="1",
    )
    warnings.simplefilter("ignore")
    if (
        importlib.util.find_spec("expecttest") is None
    ):  # torch's tests derive from its TestCase; few call more
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.distributed import distributed_test

    class Case(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        pass

    return Case


def names(case: Any) -> list[str]:
    return sorted(name for name in dir(case) if name.startswith("test_"))


def run(case: Any, name: str, backend: str, ranks: int, deadline: float = DEADLINE) -> tuple[str, str]:
    """How it ended, and what the first rank that failed said."""
    with tempfile.TemporaryDirectory() as folder:
        for old in Path(os.environ["TEMP_DIR"], "barrier").iterdir():
            old.unlink()
        meeting, logs = f"{folder}/store", [Path(folder, f"log{rank}") for rank in range(ranks)]
        ranks_ = [_fork(case, name, backend, rank, meeting, logs[rank]) for rank in range(ranks)]
        codes = _wait(ranks_, deadline)
        said = [log.read_text(errors="replace") for log in logs]
    if None in codes:
        return HUNG, "\n".join(said)[-2000:]
    bad = [rank for rank, code in enumerate(codes) if code and not 70 <= code <= 99]
    if bad:
        return FAILED, said[bad[0]][-2000:]
    return (SKIPPED if any(codes) else PASSED), ""


def _fork(case: Any, name: str, backend: str, rank: int, meeting: str, log: Path) -> int:
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        if backend != "gloo":
            _in_place_of_gloo(backend)
        theirs, ours = multiprocessing.Pipe()
        case._run(rank, name, meeting, theirs)
        code = 0
        del ours
    except SystemExit as done:
        code = int(done.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _in_place_of_gloo(backend: str) -> None:
    """Whoever asks torch for gloo gets `backend`; asked for its name, torch still says gloo."""
    from torch.distributed import distributed_c10d as c10d

    import paceline.backend  # noqa: F401 - registers the names

    make = c10d._new_process_group_helper

    def substituted(size: int, rank: int, members: Any, wanted: Any, *rest: Any, **more: Any) -> Any:
        ours = backend if "gloo" in str(wanted).lower() else wanted
        group, store = make(size, rank, members, ours, *rest, **more)
        if group in c10d._world.pg_map:
            c10d._world.pg_map[group] = (wanted, c10d._world.pg_map[group][1])
        return group, store

    c10d._new_process_group_helper = substituted
    # Events that begin and end on different threads (gloo's) can only be recorded from C++.
    from torch.testing._internal.distributed import distributed_test

    for allowed in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        setattr(distributed_test, allowed, [])


def _wait(processes: list[int], deadline: float) -> list[int | None]:
    """Exit codes in rank order; None for one that had to be killed."""
    codes: dict[int, int | None] = {}
    until = time.monotonic() + deadline
    while len(codes) < len(processes):
        for process in processes:
            if process in codes:
                continue
            if time.monotonic() > until:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                codes[process] = None
                continue
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                codes[process] = os.waitstatus_to_exitcode(status)
                if codes[process] and not 70 <= (codes[process] or 0) <= 99:
                    until = min(until, time.monotonic() + 20)
        time.sleep(0.01)
    return [codes[process] for process in processes]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--match", default="", help="only tests whose name this expression finds")
    parser.add_argument("--backends", type=lambda text: text.split(","), default=["gloo", "paceline"])
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        case = prepare(arguments.ranks, folder)
        found: dict[str, dict[str, list[str]]] = {}
        for name in names(case):
            if re.search(arguments.match, name):
                found[name] = {
                    backend: list(run(case, name, backend, arguments.ranks)) for backend in arguments.backends
                }
                ends = "  ".join(f"{backend} {end}" for backend, (end, _) in found[name].items())
                if len({end for end, _ in found[name].values()}) > 1:
                    ends += "   <-- differs"
                print(f"{name:<70}{ends}", flush=True)
    report(found, arguments)


def report(found: dict[str, dict[str, list[str]]], arguments: argparse.Namespace) -> None:
    """Counts, and the differences in full."""
    counts = {
        backend: dict(Counter(ends[backend][0] for ends in found.values())) for backend in arguments.backends
    }
    for backend, count in counts.items():
        print(backend, count)
    if arguments.json:
        import torch

        about = {"torch": torch.__version__, "ranks": arguments.ranks, "counts": counts}
        tests = {name: {backend: end for backend, (end, _) in ends.items()} for name, ends in found.items()}
        said = {
            name: {backend: text for backend, (_, text) in ends.items() if text}
            for name, ends in found.items()
            if len({end for end, _ in ends.values()}) > 1
        }
        arguments.json.write_text(json.dumps({**about, "tests": tests, "differences": said}, indent=1) + "\n")


if __name__ == "__main__":
    main()
