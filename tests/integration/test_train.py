"""`paceline train`, with real ranks: what it leaves behind, and that p ranks do what one does."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from paceline.comm import shm
from paceline.metrics.stories import stories_of

# Small enough for a second, and without dropout, so that p ranks can equal one.
SMALL = ["--model", "mlp", "--model-options", "hidden=16", "--threads", "1"]
DEADLINE = 90

PROMISED = {
    "strategy", "collective", "ranks", "nodes", "threads_per_rank", "global_batch", "epochs", "steps",
    "train_seconds", "startup_seconds", "samples_per_second", "communicate_seconds", "train_accuracy",
    "test_accuracy", "peak_memory_bytes", "machine", "versions", "commit",
}  # fmt: skip


def losses(folder: Path) -> np.ndarray:
    """The mean loss of every step over all ranks."""
    stories = stories_of(folder)
    return sum(s.column("loss") for s in stories) / sum(s.column("samples") for s in stories)


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def test_a_run_folder_holds_what_was_promised(zygote, tmp_path):
    done = zygote.paceline("train", *SMALL, "--ranks", 2, "--epochs", 3, "--out", "a", cwd=tmp_path)
    assert done.code == 0, done.err
    folder = tmp_path / "a"
    summary = summary_of(folder)
    assert set(summary) >= PROMISED
    assert (summary["ranks"], summary["epochs"], summary["global_batch"]) == (2, 3, 128)
    assert summary["samples"] == 3 * 1437 and summary["steps"] == 3 * 12
    assert len(summary["peak_memory_bytes"]) == 2
    for name in ("train_accuracy", "test_accuracy", "train_loss", "test_loss"):
        values = np.load(folder / f"{name}.npy")
        assert values.shape == (3,) and values.dtype == np.float64
        assert summary[name] == values[-1]
    assert 0.5 < summary["test_accuracy"] <= 1
    assert tomllib.loads((folder / "config.toml").read_text())["ranks"] == 2
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1
    assert sorted(path.name for path in folder.glob("journal-*")) == ["journal-0.jsonl", "journal-1.jsonl"]
    assert done.out.splitlines()[-1] == "a/summary.json"
    assert "2 × 1 thread, ddp over auto" in done.err and "epoch   3/3" in done.err
    assert done.err.count("epoch   1/3") == 1, "more than one rank printed"


def test_the_configuration_of_a_run_repeats_it(zygote, tmp_path):
    first = zygote.paceline("train", *SMALL, "--ranks", 2, "--steps", 9, "--out", "a", cwd=tmp_path)
    again = zygote.paceline("train", "--config", "a/config.toml", "--out", "b", cwd=tmp_path)
    assert (first.code, again.code) == (0, 0), again.err
    assert (losses(tmp_path / "a") == losses(tmp_path / "b")).all()
    assert summary_of(tmp_path / "b")["config_hash"] == summary_of(tmp_path / "a")["config_hash"]


@pytest.mark.parametrize("model", [SMALL, ["--model", "mnist_cnn", "--model-options", "dropout=0.0"]])
def test_p_ranks_have_the_loss_trajectory_of_one(zygote, tmp_path, model):
    trajectories = {}
    for ranks in (1, 2, 3, 4):
        words = [*model, "--threads", 1, "--ranks", ranks, "--global-batch", 60, "--epochs", 1, "--lr", 0.02]
        done = zygote.paceline("train", *words, "--out", f"p{ranks}", cwd=tmp_path)
        assert done.code == 0, done.err
        trajectories[ranks] = losses(tmp_path / f"p{ranks}")
    assert len(trajectories[1]) == 24  # 1,437 samples: 23 full steps and one of 57
    for ranks in (2, 3, 4):
        np.testing.assert_allclose(trajectories[ranks], trajectories[1], rtol=0, atol=1e-5)


def test_augmentation_does_not_depend_on_the_number_of_ranks(zygote, tmp_path):
    found = []
    for ranks in (1, 3):
        words = [
            *SMALL,
            "--augment",
            "shift:2",
            "--global-batch",
            60,
            "--epochs",
            1,
            "--ranks",
            ranks,
            "--out",
            f"p{ranks}",
        ]
        assert zygote.paceline("train", *words, cwd=tmp_path).code == 0
        found.append(losses(tmp_path / f"p{ranks}"))
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-5)


def test_batch_norm_over_all_ranks_is_that_of_one(zygote, tmp_path):
    """With it p ranks learn as one process does with its plain layer; without it they do not."""
    model = ("--model", "cifar_cnn", "--model-options", "dropout=0.0", "--threads", 1, "--lr", 0.02)
    cases = {
        "one": (),
        "own": ("--ranks", 3),
        "all": ("--ranks", 3, "--sync-batchnorm"),
        "copy": ("--ranks", 3, "--sync-batchnorm", "--strategy", "one_copy", "--collective", "shm"),
    }
    tests = {}
    for name, words in cases.items():
        done = zygote.paceline(
            "train", *model, *words, "--global-batch", 60, "--steps", 8, "--out", name, cwd=tmp_path
        )
        assert done.code == 0, done.err
        assert ("batch norm over all ranks" in done.err) == ("--sync-batchnorm" in words)
        lines = (tmp_path / name / "journal-0.jsonl").read_text().splitlines()
        tests[name] = next(json.loads(line)["test_loss"] for line in lines if '"test_loss"' in line)
    for name in ("all", "copy"):
        np.testing.assert_allclose(losses(tmp_path / name), losses(tmp_path / "one"), rtol=0, atol=1e-4)
        assert tests[name] == pytest.approx(tests["one"], abs=1e-3)
    assert np.abs(losses(tmp_path / "own") - losses(tmp_path / "one")).max() > 1e-3


def test_torch_ddp_and_ddp_agree(zygote, tmp_path):
    for strategy in ("ddp", "torch_ddp"):
        words = [
            *SMALL,
            "--strategy",
            strategy,
            "--ranks",
            3,
            "--global-batch",
            60,
            "--epochs",
            1,
            "--out",
            strategy,
        ]
        done = zygote.paceline("train", *words, cwd=tmp_path)
        assert done.code == 0, done.err
    np.testing.assert_allclose(losses(tmp_path / "ddp"), losses(tmp_path / "torch_ddp"), rtol=0, atol=1e-5)


def test_a_target_ends_the_run_and_running_accuracy_is_named(zygote, tmp_path):
    words = [*SMALL, "--epochs", 20, "--target", 0.8, "--train-accuracy", "running", "--out", "a"]
    done = zygote.paceline("train", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    summary = summary_of(tmp_path / "a")
    assert summary["epochs"] < 20 and summary["test_accuracy"] >= 0.8
    assert summary["seconds_to_target"] == pytest.approx(summary["train_seconds"])
    assert summary["train_accuracy_mode"] == "running"
    assert "the test set decides" in done.err and "target 80.00% reached" in done.out


def test_a_model_of_the_users_own(zygote, tmp_path):
    (tmp_path / "own_model.py").write_text(
        "from torch import nn\n"
        "def net(*, width=8):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))\n"
    )
    words = ["train", "--model", "own_model:net", "--model-options", "width=12", "--ranks", 2, "--out", "a"]
    done = zygote.paceline(*words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert summary_of(tmp_path / "a")["parameters"] == 784 * 12 + 12 + 12 * 10 + 10


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--strategy", "single", "--ranks", "2"], "at most 1 rank(s), not 2; use --strategy ddp"),
        (["--model", "resnet18", "--model-options", "width=3"], "has no option 'width'"),
        (["--strategy-options", "bucket=3"], "did you mean 'bucket_mb'?"),
        (["--data", "mnist", "--data-root", "."], "paceline data fetch mnist"),
        (["--global-batch", "5000"], "a step of 5000 samples is more than the 1437"),
        (["--data", "synthetic", "--data-options", "shape=[1,9,9]"], "cannot be built for 'synthetic'"),
        (["--model", "nowhere:net"], "cannot import 'nowhere'"),
        (["--augment", "spin"], "spin"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_started(zygote, tmp_path, words, expected):
    done = zygote.paceline("train", *words, cwd=tmp_path)
    assert done.code == 2, done.err
    assert expected in done.err
    assert done.err.count("\n") == 1, done.err
    assert not list(tmp_path.iterdir()), "something was written"


def test_a_folder_is_never_used_twice(zygote, tmp_path):
    assert zygote.paceline("train", *SMALL, "--steps", 2, "--out", "a", cwd=tmp_path).code == 0
    done = zygote.paceline("train", *SMALL, "--steps", 2, "--out", "a", cwd=tmp_path)
    assert done.code == 2 and "a already holds a run" in done.err
    for _ in range(2):
        assert zygote.paceline("train", *SMALL, "--steps", 2, cwd=tmp_path).code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_rank_that_raises_ends_the_run_with_its_own_traceback(zygote, tmp_path):
    (tmp_path / "raising.py").write_text(
        "import os\n"
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(784, 10)\n"
        "    def forward(self, x):\n"
        "        if os.environ['RANK'] == '1': raise FloatingPointError('planted')\n"
        "        return super().forward(x.flatten(1))\n"
    )
    done = zygote.paceline("train", "--model", "raising:Net", "--ranks", 3, "--out", "a", cwd=tmp_path)
    assert done.code == 1
    assert done.err.rstrip().splitlines()[-1].startswith("paceline: rank 1 ")
    assert "raising.py" in done.err and "FloatingPointError: planted" in done.err
    failed = json.loads((tmp_path / "a" / "failed.json").read_text())
    assert failed["rank"] == 1 and "planted" in failed["details"]
    assert not (tmp_path / "a" / "summary.json").exists()


OWNER = """
import pathlib
from paceline.strategies.ddp import Ddp

class Owner(Ddp):
    def step(self):
        if self.world.rank == 1:
            raise OSError("the disk is full")
        super().step()

    def close(self):
        super().close()
        pathlib.Path(f"closed-{self.world.rank}").touch()
"""


def test_what_a_failing_rank_owns_is_given_back(zygote, tmp_path):
    (tmp_path / "owner.py").write_text(OWNER)
    done = zygote.paceline("train", *SMALL, "--ranks", 2, "--strategy", "owner:Owner", cwd=tmp_path)
    assert done.code == 1 and "rank 1 raised OSError: the disk is full" in done.err
    assert {path.name for path in tmp_path.glob("closed-*")} == {"closed-0", "closed-1"}


@pytest.mark.slow
def test_the_same_rank_code_runs_under_torchrun(zygote, tmp_path):
    """A real torchrun, its ranks meeting in shared memory where they can; the losses are those of a local start."""
    words = ["train", *SMALL, "--global-batch", "60", "--steps", "10"]
    local = zygote.paceline(*words, "--ranks", "2", "--out", "local", cwd=tmp_path)
    assert local.code == 0, local.err
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    meeting = [] if shm.unavailable() else ["--collective", "shm"]
    done = subprocess.run(
        [*torchrun, "-m", "paceline", *words, *meeting, "--out", "torchrun"], cwd=tmp_path, capture_output=True, text=True,
        timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\nepoch") == 1
    assert summary_of(tmp_path / "torchrun")["launcher"] == "torchrun"
    assert (losses(tmp_path / "local") == losses(tmp_path / "torchrun")).all()
