"""Three ranks of which one dies; the others write down what each way of waiting said. A program of its own,
because the test session's ranks must not die."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import paceline.backend  # noqa: F401 - registers the names

WAYS = ("call", "work", "future", "callback", "backward")


def rank(number: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 3)
    dist.init_process_group("paceline", store=store, rank=number, world_size=3, timeout=timedelta(seconds=20))
    groups = {way: dist.new_group() for way in WAYS}
    model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=groups["backward"])
    loss = model(torch.ones(2, 4)).sum()
    dist.barrier()
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    found = {way: said(lambda way=way: wait(way, groups[way], loss)) for way in WAYS}
    found["afterwards"] = said(lambda: dist.all_reduce(torch.ones(1), group=groups["call"]))
    (folder / str(number)).write_text(json.dumps(found))
    dist.destroy_process_group()


def wait(way: str, group: dist.ProcessGroup, loss: torch.Tensor) -> None:
    if way == "call":
        dist.all_reduce(torch.ones(3), group=group)
    elif way == "backward":
        loss.backward()
    else:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        if way == "work":
            work.wait()
        elif way == "future":
            work.get_future().wait()
        else:
            work.get_future().then(lambda future: future.value()[0] * 2).wait()


def said(function) -> tuple[str, str]:
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", "nothing"


def main() -> int:
    folder, processes = Path(sys.argv[1]), []
    for number in range(3):
        process = os.fork()
        if not process:
            code = 1
            try:
                rank(number, folder)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        processes.append(process)
    codes: dict[int, int] = {}
    until = time.monotonic() + 60
    while len(codes) < 3 and time.monotonic() < until:
        for process in set(processes) - set(codes):
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                codes[process] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for process in set(processes) - set(codes):
        os.kill(process, signal.SIGKILL)
    return int([codes.get(process) for process in processes] != [0, 0, -signal.SIGKILL])


if __name__ == "__main__":
    sys.exit(main())
