"""Run folders become groups of comparable runs, and laws.json."""

import json

import pytest

from paceline.study.groups import write_laws


@pytest.fixture
def add(tmp_path):
    """add(ranks=2, train_seconds=5.0, …) writes the summary of one run."""

    def write(**said):
        run = {
            "status": "done",
            "scaling": "strong",
            "strategy": "ddp",
            "collective": "native",
            "data": "digits",
            "model": "mlp",
            "ranks": 1,
            "nodes": 1,
            "threads_per_rank": 1,
            "global_batch": 128,
            "batch": 128 / said.get("ranks", 1),
            "seed": 0,
            "steps": 100,
            "samples": 12_800,
            "train_seconds": 10.0,
            "train_accuracy": 0.99,
            "test_accuracy": 0.98,
            "machine": {"usable_cores": 4},
        } | said
        run.setdefault("samples_per_second", run["samples"] / (run["train_seconds"] or 1))
        folder = tmp_path / "cells" / f"cell-{len(list(tmp_path.rglob('summary.json')))}"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(run))
        return folder

    return write


def groups(folder):
    path = write_laws(folder)
    assert path == folder / "laws.json"
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    return content["groups"]


def test_a_group_holds_ranks_and_repeats(add, tmp_path):
    for seed in (1, 0):
        for ranks, seconds in ((4, 3.0), (1, 10.0), (2, 5.5)):
            add(
                ranks=ranks,
                seed=seed,
                train_seconds=seconds * (1 + seed / 10),
                test_accuracy=0.98 - seed / 100,
            )
    (group,) = groups(tmp_path)
    assert group["label"] == "ddp native, strong, batch 128"
    assert (group["scaling"], group["strategy"], group["collective"], group["batch"]) == (
        "strong",
        "ddp",
        "native",
        128,
    )
    assert group["ranks"] == [1, 2, 4]
    assert group["repeats"] == {"1": 2, "2": 2, "4": 2}
    assert group["train_seconds"] == {  # by seed
        "1": [10.0, 11.0],
        "2": [5.5, pytest.approx(6.05)],
        "4": [3.0, pytest.approx(3.3)],
    }
    assert group["samples_per_second"]["1"] == [1280.0, pytest.approx(12_800 / 11)]
    assert group["test_accuracy"]["2"] == [0.98, 0.97]
    assert group["updates"] == {"1": 100, "2": 100, "4": 100}
    assert group["global_batch"] == {"1": 128, "2": 128, "4": 128}
    analysis = group["analysis"]
    assert analysis["speedup"]["2"] == pytest.approx(10 / 5.5)
    assert analysis["repeats"] == {"1": 2, "2": 2, "4": 2}
    assert analysis["scaling"] == "strong"
    assert analysis["warnings"] == []


def test_what_differs_makes_another_group(add, tmp_path):
    add(scaling=None)
    add(scaling="weak", batch=32, global_batch=32)
    add()
    add(strategy="torch_ddp")
    add(collective="ring")
    add(global_batch=256)
    add(data="mnist")
    add(model="mnist_cnn")
    found = groups(tmp_path)
    assert len(found) == 8
    assert [group["scaling"] for group in found] == ["strong"] * 6 + ["weak", None]
    assert [group["label"] for group in found][-2:] == ["ddp native, weak, batch 32", "ddp native, batch 128"]


def test_weak_cells_share_the_batch_of_a_rank(add, tmp_path):
    for ranks in (1, 2, 4):
        seconds = 10 / ranks + 1
        add(
            scaling="weak",
            ranks=ranks,
            batch=32,
            global_batch=32 * ranks,
            steps=400 // ranks,
            train_seconds=seconds,
        )
    (group,) = groups(tmp_path)
    assert group["batch"] == 32
    assert group["global_batch"] == {"1": 32, "2": 64, "4": 128}
    codes = [line.partition(":")[0] for line in group["analysis"]["warnings"]]
    assert codes == ["global batch changed", "updates changed"]
    assert "weak scaling, where accuracy" in group["analysis"]["warnings"][0]


def test_speedup_is_the_ratio_of_the_throughputs(add, tmp_path):
    """Two ranks that trained on twice the samples in the same time are twice as fast."""
    add(ranks=1, train_seconds=10.0, samples=1000)
    add(ranks=2, train_seconds=10.0, samples=2000)
    (group,) = groups(tmp_path)
    assert group["analysis"]["speedup"] == {"1": 1.0, "2": 2.0}
    assert group["train_seconds"] == {"1": [10.0], "2": [10.0]}


def test_uneven_batches_are_no_change_of_the_global_batch(add, tmp_path):
    for ranks in (1, 3, 7):
        add(ranks=ranks, train_seconds=10 / ranks + 1)
    (group,) = groups(tmp_path)
    assert not any("global batch" in line for line in group["analysis"]["warnings"])


def test_cores_count_all_nodes_and_threads_are_told(add, tmp_path):
    add(ranks=1, machine={"usable_cores": 2}, threads_per_rank=2)
    add(ranks=4, machine={"usable_cores": 2}, train_seconds=4.0)
    (group,) = groups(tmp_path)
    codes = [line.partition(":")[0] for line in group["analysis"]["warnings"]]
    assert codes == ["threads changed", "oversubscribed"]
    add(ranks=8, nodes=4, machine={"usable_cores": 2}, train_seconds=3.0)
    (group,) = groups(tmp_path)
    assert not any(line.startswith("oversubscribed") for line in group["analysis"]["warnings"])


def test_unfinished_and_unreadable_runs_belong_to_no_group(add, tmp_path):
    add()
    add(status="failed", ranks=2)
    add(ranks=2, train_seconds=0.0)
    add(ranks=2, samples=0)
    (add(ranks=2) / "summary.json").write_text('{"status": "do')
    (add(ranks=2) / "summary.json").write_text("[]")
    (group,) = groups(tmp_path)
    assert group["ranks"] == [1]
    assert group["analysis"]["verdict"].startswith("Only p = 1 was measured")


def test_accuracy_that_was_not_measured_is_left_out(add, tmp_path):
    add(test_accuracy=float("nan"))
    add(ranks=2, test_accuracy=None, train_seconds=6.0)
    (group,) = groups(tmp_path)
    assert group["test_accuracy"] == {}
    assert group["train_accuracy"] == {"1": [0.99], "2": [0.99]}


def test_no_run_gives_no_group(tmp_path):
    assert groups(tmp_path) == []


def test_it_can_be_written_again(add, tmp_path):
    add()
    assert groups(tmp_path) == groups(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells", "laws.json"]
