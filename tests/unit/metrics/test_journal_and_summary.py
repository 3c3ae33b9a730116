"""Journals merge into a summary whose numbers can be checked by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from paceline.config import RunConfig
from paceline.errors import PacelineError
from paceline.metrics.accounts import waits
from paceline.metrics.journal import Journal, journal_path, read
from paceline.metrics.stories import stories_of
from paceline.metrics.summary import note_losses, seconds_to, summarise

PLAN = {
    "ranks": 2, "nodes": 1, "threads_per_rank": 1, "batch": 2, "global_batch": 4, "learning_rate": 0.1,
    "train_size": 8, "samples": 16,
}  # fmt: skip


def start(rank: int, **changes) -> dict:
    line = {"rank": rank, "size": 2, "boot_id": "x", "startup_seconds": 1.0 + rank, "in_rounds": True}
    if rank == 0:
        line |= {
            "id": "r", "launcher": "local", "config": RunConfig(target=0.8).as_dict(), "config_hash": "0" * 12,
            "plan": PLAN, "parameters": 7, "data_bytes": 10, "data_verified": True, "data_notice": "",
            "machine": {}, "versions": {}, "commit": "", "command": "paceline train", "started": 1000.0,
            "started_at": "now",
        }  # fmt: skip
    return line | changes


def steps(epoch: int, first: int, loss: list, at: float, arrive: list, leave: list, **seconds) -> dict:
    phases = dict.fromkeys(("data", "forward", "backward", "communicate", "update", "other"), 0.0) | seconds
    return {
        "epoch": epoch, "first": first, "loss": loss, "samples": [2] * len(loss), "at": at,
        "arrive": arrive, "leave": leave, "seconds": phases,
    }  # fmt: skip


def epoch(number: int, train: float, test: float) -> dict:
    return {
        "epoch": number, "step": 2 * number + 2, "train_accuracy": train, "test_accuracy": test, "test_loss": 1 - test,
        "evaluate_seconds": 0.25,
    }  # fmt: skip


END = {
    "time": 1010.0, "steps": 4, "messages": 4, "bytes": 160, "peak_memory_bytes": 100,
    "proportional_memory_bytes": 60,
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Two ranks, two epochs of two steps. Rank 1 arrives 1 s late at the first step, rank 0 0.5 s at the second."""
    zero = Journal(tmp_path, 0)
    zero.write("start", **start(0))
    zero.write("steps", **steps(0, 0, [4.0, 2.0], 10.0, [0, 1_500_000], [1_100_000, 1_600_000],
                                forward=2.0, backward=1.0, communicate=1.2, update=0.8))  # fmt: skip
    zero.write("epoch", **epoch(0, 0.6, 0.7))
    zero.write(
        "steps", **steps(1, 2, [1.0, 1.0], 20.0, [0, 100], [100, 200], forward=3.0, communicate=0.0002)
    )
    zero.write("note", text="mind this")
    zero.write("epoch", **epoch(1, 0.9, 0.85))
    zero.write("end", **END)
    one = Journal(tmp_path, 1)
    one.write("start", **start(1))
    one.write(
        "steps", **steps(0, 0, [2.0, 2.0], 11.0, [0, 0], [100_000, 600_000], forward=3.0, communicate=0.7)
    )
    one.write("epoch", **epoch(0, 0.6, 0.7))
    one.write("steps", **steps(1, 2, [1.0, 1.0], 20.0, [0, 100], [100, 200], forward=4.0, communicate=0.0002))
    one.write("epoch", **epoch(1, 0.9, 0.85))
    one.write("note", text="mind this")
    one.write("end", **END | {"peak_memory_bytes": 90})
    zero.close()
    one.close()
    return tmp_path


def test_wall_time_is_the_slowest_ranks_never_the_sum(run):
    summary = summarise(run)
    assert summary["epoch_seconds"] == [5.0, pytest.approx(4.0002)]
    assert summary["train_seconds"] == pytest.approx(9.0002)
    assert summary["startup_seconds"] == 2.0
    assert summary["total_seconds"] == 10.0
    assert summary["samples"] == 16
    assert summary["samples_per_second"] == pytest.approx(16 / 9.0002)


def test_waiting_is_told_from_communicating_by_who_came_last(run):
    assert waits(stories_of(run)).sum(axis=1) == pytest.approx([1.0, 0.5])
    phases = summarise(run)["phases"]
    assert phases["communicate"] == pytest.approx([0.2002, 0.2002])
    # and whoever ends an epoch before the slowest rank waits for it
    assert phases["wait"] == pytest.approx([1.0 + 9.0002 - 8.0002, 0.5 + 9.0002 - 7.7002])


def test_phases_of_every_rank_add_up_to_the_wall_time(run):
    summary = summarise(run)
    for rank in range(2):
        assert sum(p[rank] for p in summary["phases"].values()) == pytest.approx(summary["train_seconds"])
    means = sum(summary[f"{name}_seconds"] for name in summary["phases"])
    assert means == pytest.approx(summary["train_seconds"])


def test_arrays_and_quality(run):
    summary = summarise(run)
    assert np.load(run / "train_accuracy.npy").tolist() == [0.6, 0.9]
    assert np.load(run / "test_accuracy.npy").tolist() == [0.7, 0.85]
    assert np.load(run / "train_loss.npy").tolist() == [10 / 8, 4 / 8]
    assert summary["test_accuracy"] == summary["best_test_accuracy"] == 0.85
    assert summary["seconds_to_target"] == pytest.approx(9.0002)
    assert summary["peak_memory_bytes"] == [100, 90]
    assert summary["warnings"] == ["mind this"]
    assert json.loads((run / "summary.json").read_text()) == summary


def test_what_each_epoch_had_reached(run):
    summary = summarise(run)
    assert summary["epoch_samples"] == [8, 16]
    assert summary["epoch_updates"] == [2, 4]


def test_a_lost_rank_leaves_a_whole_summary(run):
    lines = journal_path(run, 1).read_text().splitlines(keepends=True)
    journal_path(run, 1).write_text("".join(lines[:2]))  # its start and the steps of its first epoch
    end = journal_path(run, 0).read_text().splitlines(keepends=True)
    journal_path(run, 0).write_text("".join(end[:-1]))
    zero = Journal(run, 0)
    zero.write("lost", rank=1, epoch=1)
    zero.write("end", **END)
    zero.close()
    summary = summarise(run)
    assert summary["lost_ranks"] == [1]
    assert summary["samples"] == 16  # as planned: what it had under way was dealt again
    assert summary["phases"]["wait"][1] == 0.0  # whoever is gone waits for nobody
    assert summary["compute_seconds"] == pytest.approx(6.0)  # the mean of who is left
    assert summary["peak_memory_bytes"] == [100, None]
    note_losses(run, {1: "rank 1 was killed by SIGKILL"})
    told = json.loads((run / "summary.json").read_text())
    assert told["warnings"] == ["mind this", "rank 1 was killed by SIGKILL; the others went on without it"]
    assert told["lost_ranks"] == [1]


def test_seconds_to_a_target():
    seconds = np.asarray([1.0, 2.0, 4.0])
    assert seconds_to(0.5, np.asarray([0.1, 0.5, 0.9]), seconds) == 3.0
    assert seconds_to(0.95, np.asarray([0.1, 0.5, 0.9]), seconds) is None


def test_without_a_common_clock_nothing_is_called_waiting(run):
    stories = stories_of(run)
    stories[1].start["boot_id"] = "another machine"
    assert waits(stories) is None
    stories[1].start["boot_id"] = "x"
    stories[0].start["in_rounds"] = False
    assert waits(stories) is None


def test_steps_without_a_collective_are_no_waiting(tmp_path):
    journal = Journal(tmp_path, 0)
    journal.write("start", **start(0))
    journal.write("steps", **steps(0, 0, [1.0], 0.0, [None], [None], forward=1.0))
    journal.write("end", **END)
    journal.close()
    (story,) = stories_of(tmp_path)
    assert math.isnan(story.moments("arrive")[0])
    assert waits([story]).tolist() == [[0.0]]


def test_a_torn_last_line_is_left_out(tmp_path):
    journal = Journal(tmp_path, 0)
    journal.write("start", a=1)
    journal.close()
    with journal_path(tmp_path, 0).open("a") as file:
        file.write('{"kind": "ste')
    assert [line["kind"] for line in read(journal_path(tmp_path, 0))] == ["start"]


def test_a_rank_that_did_not_finish_is_named(run):
    lines = journal_path(run, 1).read_text().splitlines(keepends=True)
    journal_path(run, 1).write_text("".join(lines[:-1]))
    with pytest.raises(PacelineError, match="rank 1 did not finish"):
        summarise(run)
    journal_path(run, 0).unlink()
    with pytest.raises(PacelineError, match="rank 0 did not finish"):
        summarise(run)
