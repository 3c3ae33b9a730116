"""`paceline doctor` on this machine: a real run, one that measures nothing, and a torch that cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from paceline.cli import main

WHAT = [
    "cores",
    "threads",
    "/dev/shm",
    "gloo",
    "extension",
    "torch",
    "MPI",
    "SLURM",
    "data sets",
    "cache",
    "all-reduce",
]


def test_a_real_run(zygote, tmp_path):
    done = zygote.paceline("doctor", "--json", "--seconds", "0.5", cwd=tmp_path)
    found = json.loads(done.out)
    assert [line["what"] for line in found["lines"]] == WHAT
    states = {line["what"]: line["state"] for line in found["lines"]}
    assert states["torch"] in ("fine", "advice") and states["all-reduce"] in ("fine", "advice"), done.out
    assert found["ready"] is ("broken" not in states.values()) and done.code == (0 if found["ready"] else 1)
    assert {row["elements"] for row in found["all_reduce"]} == {1_000, 100_000}
    assert {"native", "ring"} <= {row["collective"] for row in found["all_reduce"]}


def test_lines_for_a_pipe_and_exit_code_1_for_what_is_broken(zygote, tmp_path):
    done = zygote.paceline("doctor", "--seconds", 0, cwd=tmp_path, PACELINE_DATA="/not/there")
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert lines[0] == ["what", "state", "found", "do"] and [line[0] for line in lines[1:]] == WHAT
    assert all(len(line) == 4 for line in lines)
    assert ["data sets", "broken"] in [line[:2] for line in lines] and done.code == 1


def test_a_torch_that_cannot_be_imported_is_a_line(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: planted')\n")
    words = [sys.executable, "-m", "paceline", "doctor", "--seconds", "0"]
    path = os.pathsep.join([str(tmp_path), *sys.path[1:]])
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("torch\t"))
    assert "broken" in line and "libtorch.so: planted" in line


@pytest.mark.parametrize("words", [["--seconds", "-1"], ["--seconds", "x"], ["--second", "1"], ["extra"]])
def test_mistakes_are_one_line(words, capsys):
    assert main(["doctor", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
