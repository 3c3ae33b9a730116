"""One order, whatever launched the ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.cli import main

THERE_AND_BACK = ["rank 0", "rank 1", "rank 2", "rank 2", "rank 1", "rank 0", "---"]


def test_there_and_back_in_every_iteration(zygote, tmp_path):
    done = zygote.paceline("sequential-print", "--ranks", 3, "--iterations", 2, cwd=tmp_path)
    assert (done.code, done.out.splitlines()) == (0, THERE_AND_BACK * 2), done.err


@pytest.mark.slow
def test_under_torchrun_with_a_pipe_a_rank(tmp_path):
    """--tee 1 reads every rank's output from a file of its own."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "3", "--tee", "1"]
    words = ["-m", "paceline", "sequential-print", "--iterations", "2"]
    done = subprocess.run([*torchrun, *words], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.partition(":")[2] for line in done.stdout.splitlines()]
    assert lines == THERE_AND_BACK * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--iterations", "-1"], "must be 0 or more"), (["--ranks", "0"], "0 ranks cannot be")],
)
def test_mistakes_are_one_line(words, said, capsys):
    assert main(["sequential-print", *words]) == 2
    assert said in capsys.readouterr().err
