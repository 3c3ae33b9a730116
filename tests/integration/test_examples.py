"""Every example, alone and in two ranks, and one under torchrun, with small settings."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from conftest import REPOSITORY

FOLDER = REPOSITORY / "examples"
SMALL = {
    "01_ddp.py": ["--epochs", "2"],
    "03_hogwild.py": ["--epochs", "2"],
    "04_my_collective.py": [],
    "05_my_strategy.py": ["--epochs", "1", "--every", "3"],
    "06_svhn_resnet18.py": ["--data", "synthetic", "--batch", "4", "--steps", "1", "--epochs", "1"],
    "07_cifar_sync_batchnorm.py": ["--data", "synthetic", "--batch", "32", "--steps", "2", "--epochs", "1"],
    "08_sequential_print.py": [],
}
ALONE = """
import runpy, sys
for name, words in {small!r}.items():
    print("==", name)
    sys.argv = [name, *words]
    runpy.run_path({folder!r} + "/" + name, run_name="__main__")
"""


def test_every_example_of_a_loop_of_ones_own_is_here():
    ours = {path.name for path in FOLDER.glob("*.py") if "pl.join" in path.read_text()}
    assert ours == set(SMALL)


def accuracies(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"test accuracy ([\d.]+)%", text)]


def check(name: str, text: str, ranks: int) -> None:
    """Does it look as it should?"""
    lines = text.splitlines()
    if name == "04_my_collective.py":
        assert [line.partition(":")[0] for line in lines] == [f"rank {rank}" for rank in range(ranks)] * 2
        assert all("the same: True" in line for line in lines[:ranks])
        assert len({line.partition(":")[2] for line in lines[ranks:]}) == 1
    elif name == "08_sequential_print.py":
        there = [f"rank {rank}" for rank in range(ranks)]
        assert lines == [*there, *reversed(there), "---"] * 2
    else:
        if name == "03_hogwild.py":
            assert f"updates by {ranks} rank(s)" in lines[-1]
        wanted = int((SMALL[name] + ["3"])[SMALL[name].index("--epochs") + 1])
        assert len(accuracies(text)) == wanted


@pytest.mark.parametrize("name", SMALL)
def test_in_two_ranks(zygote, tmp_path, name):
    done = zygote.paceline("run", FOLDER / name, "--ranks", 2, "--threads", 1, *SMALL[name], cwd=tmp_path)
    assert done.code == 0, done.err
    check(name, done.out, 2)


def same(text: str, other: str) -> None:
    """One global batch, so the same training but for rounding."""
    assert accuracies(text) == pytest.approx(accuracies(other), abs=1.0)
    assert accuracies(text)[-1] > 80


@pytest.mark.slow
def test_alone_and_under_torchrun(zygote, tmp_path):
    """Alone: all of them in one process, one after the other."""
    code = ALONE.format(small=SMALL, folder=str(FOLDER))
    texts = re.split(r"^== .*\n", python("-W", "error", "-c", code), flags=re.MULTILINE)[1:]
    for name, text in zip(SMALL, texts, strict=True):
        check(name, text, 1)
    name = "01_ddp.py"
    torchrun = python("-m", "torch.distributed.run", "--nproc_per_node", "2", FOLDER / name, *SMALL[name])
    done = zygote.paceline("run", FOLDER / name, "--ranks", 4, "--threads", 1, *SMALL[name], cwd=tmp_path)
    same(torchrun, texts[0])
    same(done.out, texts[0])


def python(*words: object) -> str:
    """What it prints."""
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout
