"""What becomes of a run when one of its ranks is killed: it ends and names the rank, or survives as promised."""

from __future__ import annotations

import json
import re

import pytest

from paceline.registry import STRATEGIES

NAMES = STRATEGIES.names()


def train(zygote, folder, ranks, name, mortal, *words):
    return zygote.paceline(
        "train", "--ranks", ranks, "--strategy", name, "--model", "cases.mortal:model", "--data", "digits",
        "--epochs", 3, "--batch", 16, "--threads", 1, "--lr", 0.01, "--deadline", 20, "--out", folder, *words,
        cwd=folder.parent, MORTAL=mortal,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_rank_ends_the_run_and_is_named(zygote, tmp_path, name):
    ranks = max(STRATEGIES.load(name).least_ranks, min(2, STRATEGIES.load(name).most_ranks or 2))
    trainers = STRATEGIES.load(name).trainers(ranks, {})
    done = train(zygote, tmp_path / "run", ranks, name, f"{trainers - 1}:7")
    assert done.code == 1
    assert f"rank {trainers - 1} was killed by SIGKILL" in done.err
    failed = json.loads((tmp_path / "run" / "failed.json").read_text())
    assert failed["rank"] == trainers - 1
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(
    ("ranks", "options"),
    [(4, "mode=async"), (5, "mode=ssp,staleness=2,servers=2")],
    ids=["async", "ssp over two servers"],
)
def test_a_killed_trainer_is_survived_where_that_was_promised(zygote, tmp_path, ranks, options):
    done = train(
        zygote, tmp_path / "run", ranks, "parameter_server", "1:10", "--strategy-options", f"{options},survive=true"
    )  # fmt: skip
    assert done.code == 0, done.err
    # In which epoch its tenth step is, is for the order in which trainers come to say.
    assert re.search(r"rank 1 died in epoch \d; the others go on without it", done.err)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["lost_ranks"] == [1]
    assert [text for text in summary["warnings"] if "rank 1 was killed by SIGKILL" in text]
    assert summary["epochs"] == 3
    assert summary["samples"] == 3 * 1437
    # Each piece was made an update once: what rank 1 had under way was dealt again.
    assert summary["updates"] == 3 * -(-1437 // 48) * 3
    assert summary["dealt_again"] == 1
    assert summary["test_accuracy"] > 0.5
    assert summary["messages_by_rank"][1] is None


@pytest.mark.parametrize(
    "mortal", ["0:10", "1:evaluating"], ids=["the first rank", "while replicas are compared"]
)
def test_who_cannot_be_spared_is_named(zygote, tmp_path, mortal):
    options = ["--strategy-options", "mode=async,survive=true"]
    done = train(zygote, tmp_path / "run", 4, "parameter_server", mortal, *options)
    assert done.code == 1
    assert f"rank {mortal[0]} was killed by SIGKILL" in done.err


def test_a_launcher_that_ends_all_ranks_survives_nothing(zygote, tmp_path):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    place = dict(zip(names, "03030", strict=True)) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    words = ["train", "--strategy", "parameter_server", "--strategy-options", "mode=async,survive=true"]
    done = zygote.paceline(*words, cwd=tmp_path, **place)
    assert done.code == 2
    assert "torchrun ends all ranks when one dies" in done.err
