"""What is read from disk, how it is grouped, and which laws belong to it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from made_study import NOTICE, make_failed, make_run, make_study, summary
from paceline.errors import ConfigError, DataError
from paceline.report.read import load


def test_a_study_is_grouped_by_scaling(study):
    assert [group.title for group in study.groups] == [
        "ddp native, global batch 128 (strong scaling)",
        "ddp native, batch per rank 128 (weak scaling)",
    ]
    assert all(group.ranks == [1, 2, 4, 8] and len(group.runs) == 12 for group in study.groups)
    assert study.title == "Scaling of data-parallel MNIST"
    assert study.commands == ["paceline study studies/scaling.toml --out runs/scaling"]
    assert study.targets == ["0.95", "0.98"]


def test_speedups_are_those_of_laws_json(study, study_folder):
    laws = json.loads((study_folder / "laws.json").read_text())
    for group, entry in zip(study.groups, laws["groups"], strict=True):
        for p in group.ranks:
            assert group.speedup(p) == entry["analysis"]["speedup"][str(p)]
            assert group.efficiency(p) == pytest.approx(entry["analysis"]["efficiency"][str(p)])
        assert group.verdict == entry["analysis"]["verdict"]


def test_failed_and_missing_cells_are_kept_apart(study):
    failed, missing = study.failures
    assert (failed.rank, failed.error) == (3, "rank 3 was killed (signal 9): out of memory?")
    assert missing.folder is None
    assert missing.id.endswith("p16-b128-s1-1a2b3c4d")


def test_crowded_means_more_ranks_than_cores(study):
    assert [study.groups[0].crowded(p) for p in (1, 2, 4, 8)] == [False, False, True, True]


def test_cells_that_a_study_no_longer_lists_are_left_out(tmp_path):
    folder = make_study(tmp_path / "study", scalings=("strong",), ranks=(1, 2), repeats=1, laws=False)
    make_run(folder / "cells" / "earlier", summary("earlier", "strong", 4, 0))
    assert load([folder]).groups[0].ranks == [1, 2]


def test_laws_about_other_runs_do_not_apply(tmp_path):
    folder = make_study(tmp_path / "study", scalings=("strong",), ranks=(1, 2), repeats=2)
    (folder / "study.json").unlink()
    later = summary("later", "strong", 4, 0)
    make_run(folder / "cells" / "later", later)
    (group,) = load([folder]).groups
    assert group.law == {}
    assert group.speedup_interval(4) is None
    assert group.speedup(4) == pytest.approx(later["samples_per_second"] / group.rate(1))


def test_folders_are_merged_and_counted_once(tmp_path):
    one, two = (make_run(tmp_path / f"p{p}", summary(f"p{p}", "strong", p, 0)) for p in (1, 2))
    study = load([one, two, one])
    assert [run.id for run in study.runs] == ["p1", "p2"]
    assert study.groups[0].ranks == [1, 2]
    assert study.groups[0].speedup(2) == pytest.approx(study.groups[0].rate(2) / study.groups[0].rate(1))


def test_without_one_rank_the_smallest_p_is_the_baseline(tmp_path):
    (group,) = load([make_study(tmp_path / "study", scalings=("strong",), ranks=(2, 4), repeats=1)]).groups
    assert group.baseline == 2
    assert group.speedup(2) == 1
    assert group.efficiency(4) == pytest.approx(group.speedup(4) / 2)


def test_models_are_never_mixed(tmp_path):
    for model in ("mnist_cnn", "mlp"):
        make_run(tmp_path / model, summary(model, "strong", 1, 0) | {"model": model})
    assert [group.label for group in load([tmp_path]).groups] == [
        "ddp native, global batch 128, mlp on mnist",
        "ddp native, global batch 128, mnist_cnn on mnist",
    ]


def test_an_unreadable_cell_does_not_lose_the_others(tmp_path):
    good, cut = (make_run(tmp_path / name, summary(name, "strong", 1, 0)) for name in ("good", "cut"))
    (cut / "summary.json").write_text('{"schema": 1, "ran')
    bad = make_run(tmp_path / "bad", summary("bad", "strong", 1, 0))
    (bad / "test_accuracy.npy").write_bytes(b"nothing")
    study = load([tmp_path])
    assert [run.folder for run in study.runs] == [good]
    assert {failure.id: failure.error for failure in study.failures}.keys() == {"cut", "bad"}
    assert "cannot be read as JSON" in study.failures[1].error


def test_missing_numbers_are_none(tmp_path):
    made = summary("bare", None, 1, 0)
    bare = {key: made[key] for key in ("schema", "id", "strategy", "ranks", "epochs")} | {
        "train_seconds": float("nan")
    }
    folder = make_run(tmp_path / "bare", made)
    (folder / "summary.json").write_text(json.dumps(bare))
    (folder / "test_accuracy.npy").unlink()
    run = load([folder]).runs[0]
    assert run.number("train_seconds") is None
    assert run.memory_per_node is None
    assert run.memory_per_rank is None
    assert run.curves["test_accuracy"].size == 0
    assert run.curves["train_accuracy"].size == made["epochs"]


def test_memory_of_a_node_divides_the_ranks_by_the_nodes(tmp_path):
    made = summary("two", None, 2, 0) | {"nodes": 2, "proportional_memory_bytes": [10, 30]}
    assert load([make_run(tmp_path / "two", made)]).runs[0].memory_per_node == 20


@pytest.mark.parametrize("content", ["[1, 2]", "{"])
def test_a_broken_study_file_is_one_line(tmp_path, content):
    make_failed(tmp_path / "cell")
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(DataError, match=r"study\.json"):
        load([tmp_path])


def test_mistakes_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        load([tmp_path / "nothing"])
    with pytest.raises(ConfigError, match=r"no run below .*summary\.json"):
        load([tmp_path])


def test_a_moved_study_reads_the_same(tmp_path, study_folder, study):
    moved = shutil.copytree(study_folder, tmp_path / "moved")
    again = load([moved])
    assert [run.summary for run in again.runs] == [run.summary for run in study.runs]
    assert again.runs[0].text("data_notice") == NOTICE
    assert np.array_equal(again.runs[0].curves["train_loss"], study.runs[0].curves["train_loss"])
