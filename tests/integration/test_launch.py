"""Ranks under torch: they join gloo over the held socket, and a death is told from its echoes."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import json, os, signal, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
from paceline.errors import PacelineError, RankFailed
from paceline.launch.local import start

def join(place):
    store = dist.TCPStore(place.address, place.port, place.size, is_master=place.rank == 0,
                          timeout=timedelta(seconds=20), wait_for_workers=False,
                          master_listen_fd=place.listen_fd)
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.size,
                            timeout=timedelta(seconds=20))

def report(function, ranks):
    try:
        start(function, ranks, threads=1, deadline=40)
        print(json.dumps(None))
    except PacelineError as error:
        print(json.dumps([str(error), getattr(error, "details", "")]))
"""


def run(folder, body):
    path = folder / "script.py"
    path.write_text(PRELUDE + textwrap.dedent(body))
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    return sorted(printed), json.loads(last)


@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_join_gloo_over_the_held_socket(tmp_path, ranks):
    printed, error = run(
        tmp_path,
        f"""
        def function(place):
            join(place)
            try:
                total = torch.full((1000,), float(place.rank + 1))
                dist.all_reduce(total)
                print(torch.get_num_threads(), int(total.sum()))
            finally:
                dist.destroy_process_group()
        report(function, {ranks})
        """,
    )
    assert error is None
    assert printed == [f"1 {1000 * ranks * (ranks + 1) // 2}"] * ranks


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 was killed by SIGKILL"),
        ("raise ValueError('on purpose')", "rank 1 raised ValueError: on purpose"),
        ("sys.exit(0)", "rank 1 left with exit code 0"),
    ],
)
def test_a_death_in_a_collective_is_told_from_its_echoes(tmp_path, how, text):
    """The other three see their connections close within milliseconds and raise too."""
    _, error = run(
        tmp_path,
        f"""
        def function(place):
            join(place)
            try:
                for number in range(10_000):
                    if place.rank == 1 and number == 20:
                        {how}
                    dist.all_reduce(torch.ones(100_000))
            finally:
                dist.destroy_process_group()
        report(function, 4)
        """,
    )
    assert error[0].startswith(text)
    assert "peer" not in error[1]


def test_every_thread_can_be_used_in_a_rank(tmp_path):
    """The launcher's pools must not be missing in the ranks: a matrix product on two threads ends."""
    printed, error = run(
        tmp_path,
        """
        def function(place):
            torch.set_num_threads(2)
            product = torch.ones(300, 300) @ torch.ones(300, 300)
            weight = torch.ones(4, 3, 3, 3, requires_grad=True)
            torch.nn.functional.conv2d(torch.ones(8, 3, 32, 32), weight).sum().backward()
            print(int(product[0, 0]))
        report(function, 2)
        """,
    )
    assert error is None
    assert printed == ["300", "300"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: torch starts no pool")
def test_a_launcher_that_ran_tensor_operations_is_refused(tmp_path):
    _, error = run(
        tmp_path,
        """
        torch.set_num_threads(2)
        torch.ones(1_000_000).sum()
        report(lambda place: None, 2)
        """,
    )
    assert "native thread(s) run where ranks are to be started" in error[0]


def test_torchrun_is_read(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from paceline.launch.environment import current\n"
        "place = current()\n"
        "age = time.time() - place.started\n"
        "import os\n"
        "line = f'{place.rank} {place.size} {place.local_size} {place.node} {place.nodes} {place.launcher}'\n"
        "os.write(1, f'{line} {0.5 < age < 60}\\n'.encode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert sorted(done.stdout.splitlines()) == ["0 2 2 0 1 torchrun True", "1 2 2 0 1 torchrun True"], (
        done.stderr
    )
