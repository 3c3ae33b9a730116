"""At equal samples, updates, seconds: which evaluation of a run counts; and the tables of what cooperating took."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from made_study import make_run, summary
from paceline.report import compare, cooperation
from paceline.report.read import load


def made(
    name: str, accuracy: list[float], samples: list[int], updates: list[float], seconds: list[float], **more
):
    return (
        summary(name, "strong", 2, 0, epochs=len(accuracy))
        | {"epoch_samples": samples, "epoch_updates": updates, "epoch_seconds": seconds, "variant": name}
        | more,
        accuracy,
    )  # fmt: skip


FEW = made("few messages", [0.5, 0.6, 0.7], [100, 200, 300], [10, 20, 30], [1.0, 1.0, 1.0])
MANY = made("many messages", [0.4, 0.8, 0.9], [100, 200, 300], [20, 40, 60], [2.0, 2.0, 2.0])


@pytest.fixture
def study(tmp_path):
    def load_as(quantity: str, *runs):
        shutil.rmtree(tmp_path / "study", ignore_errors=True)
        folder = tmp_path / "study"
        for said, accuracy in runs:
            place = make_run(folder / "cells" / said["variant"].replace(" ", "-"), said)
            np.save(place / "test_accuracy.npy", np.asarray(accuracy))
        cells = [{"id": said["variant"].replace(" ", "-")} for said, _ in runs]
        (folder / "study.json").write_text(json.dumps({"name": "x", "compare": quantity, "cells": cells}))
        return load([folder])

    return load_as


@pytest.mark.parametrize(
    ("quantity", "accuracies"),
    [("samples", ["70.00 %", "90.00 %"]), ("updates", ["70.00 %", "40.00 %"]), ("seconds", ["70.00 %", "40.00 %"])],
)  # fmt: skip
def test_the_last_evaluation_up_to_what_every_run_reached_counts(study, quantity, accuracies):
    (table,) = compare.at_equal(study(quantity, FEW, MANY))
    assert table.title.startswith(f"At equal {quantity}: up to 3")
    assert [row[3].text for row in table.rows] == accuracies
    (drawing,) = compare.curves(study(quantity, FEW, MANY))
    assert f"Test accuracy over {quantity}" in drawing.description


def test_a_run_that_was_evaluated_later_has_no_accuracy_there(study):
    late = made("late", [0.9], [300], [90], [9.0])
    (table,) = compare.at_equal(study("updates", FEW, late))
    assert [row[3].text for row in table.rows] == ["70.00 %", "evaluated later"]


def test_summaries_without_epochs_count_them_as_equally_long(study):
    said = {key: value for key, value in MANY[0].items() if not key.startswith("epoch_")}
    data = study("updates", FEW, ({**said, "updates": 60, "samples": 300, "train_seconds": 6.0}, MANY[1]))
    run = next(run for run in data.runs if run.text("variant") == "many messages")
    assert [compare.reached(run, name).tolist() for name in compare.QUANTITIES] == [
        [100, 200, 300], [20, 40, 60], [2, 4, 6],
    ]  # fmt: skip


def test_cooperation_shows_what_there_is_to_show(study):
    counted = {
        "messages_by_rank": [10, 10, None], "bytes_by_rank": [4000, 4000, None], "updates": 30,
        "updates_per_sample": 0.1, "staleness": {"0": 1, "2": 8, "7": 1}, "waited_for_seconds": [0.0, 2.5],
        "overlapping_updates": 0, "steps_between_agreements": {"1": 30}, "lost_ranks": [2],
    }  # fmt: skip
    data = study("samples", (FEW[0] | counted, FEW[1]))
    (table,) = cooperation.accounts(data)
    row = dict(zip([name for name, _ in table.heads], [cell.text for cell in table.rows[0]], strict=True))
    assert row["messages"] == "20"
    assert row["sent"] == "8.00 kB"
    assert row["waited for"] == "rank 1 2.50 s"
    assert row["update"] == "1 per 10.0 samples"
    assert row["staleness, median"] == "2 (at most 7)"
    assert row["lost ranks"] == "2"
    assert not {"overlapping", "dropped", "steps between agreements, median"} & row.keys()
    (histogram,) = cooperation.staleness(data)
    assert [cell.text for cell in histogram.rows[0]] == ["2", "10.0 %", "80.0 %", "10.0 %"]
    assert cooperation.agreements(data) == []


def test_a_long_histogram_is_shown_in_twelve_bins_that_hold_everything(study):
    counts = {str(value): 1 for value in range(30)}
    data = study("samples", (FEW[0] | {"staleness": counts}, FEW[1]))
    (histogram,) = cooperation.staleness(data)
    shares = [float(cell.text.rstrip(" %")) for cell in histogram.rows[0][1:]]
    assert len(shares) <= 12
    assert sum(shares) == pytest.approx(100, abs=0.6)
