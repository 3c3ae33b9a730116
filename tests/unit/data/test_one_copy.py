"""Eight ranks that map a set hold one physical copy of it together."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

RANKS = 8
MEASURE = """
    import os, sys
    from pathlib import Path
    from paceline.data import prepare

    def proportional_bytes(folder):
        total, ours = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            first = line.split()[0]
            if "-" in first and not first.endswith(":"):
                ours = folder in line
            elif ours and first == "Pss:":
                total += int(line.split()[1]) * 1024
        return total

    def rank(prepared, ready, go, report):
        from paceline.data import Resident
        data = Resident(prepared)
        for part in (data.train, data.test):
            assert int(part.images.sum()) > 0 and int(part.labels.sum()) > 0   # touches every page
        ready.wait(60)
        report.put(proportional_bytes(str(prepared.folder)))
        go.wait(60)

    prepared = prepare("synthetic", options={"train": 20000, "test": 1000})
    import multiprocessing, torch
    fork = multiprocessing.get_context("fork")
    ready, go, report = fork.Barrier(RANKS), fork.Barrier(RANKS), fork.Queue()
    ranks = [fork.Process(target=rank, args=(prepared, ready, go, report)) for _ in range(RANKS)]
    for process in ranks:
        process.start()
    sizes = [report.get(timeout=60) for _ in ranks]
    for process in ranks:
        process.join(60)
    print(min(sizes), sum(sizes), prepared.data_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/smaps is Linux's")
def test_eight_ranks_share_one_copy():
    code = textwrap.dedent(MEASURE).replace("RANKS", str(RANKS))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    least, together, size = map(int, done.stdout.split())
    assert least > 0
    assert 0.95 * size <= together <= 1.05 * size
