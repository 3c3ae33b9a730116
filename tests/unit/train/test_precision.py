"""bfloat16 only where it is faster and right, by rank 0's finding."""

from __future__ import annotations

import dataclasses
import json

import pytest

from paceline.train.precision import Probe

FASTER = Probe(64, 0.02, 0.01, 0.6, 0.01, 0.02)


@pytest.mark.parametrize(
    ("changes", "chosen", "words"),
    [
        ({}, True, ["trains in bfloat16, evaluates in float32", "10 ms", "20 ms", "64 samples"]),
        ({"slowest_ratio": 1.01}, False, ["trains in float32", "not surely faster", "10 ms", "20 ms"]),
        ({"outputs_apart": 0.3}, False, ["trains in float32", "outputs are 30%", "10 ms", "20 ms"]),
        ({"gradients_apart": 0.5}, False, ["trains in float32", "its gradients 50%"]),
        ({"outputs_apart": float("inf")}, False, ["trains in float32", "inf"]),
    ],
)
def test_what_is_decided_and_said(changes, chosen, words):
    found = dataclasses.replace(FASTER, **changes)
    assert found.chosen == chosen
    assert all(word in found.line() for word in words) and "\n" not in found.line()


@pytest.mark.parametrize(("slow", "chosen"), [("fp32", True), ("bf16", False)])
def test_the_faster_one_is_chosen_and_nothing_is_left_changed(zygote, slow, chosen):
    for found, unchanged in zygote.run("cases.precision:probed", 1, slow=[slow]):
        assert found.chosen == chosen and found.right and unchanged
        assert found.batch == 4


def test_a_wrong_answer_is_refused_however_fast(zygote):
    ((found, _),) = zygote.run("cases.precision:probed", 1, slow=["fp32"], factor=1.5)
    assert not found.chosen and found.outputs_apart > 0.3


def test_all_ranks_take_rank_0s_decision(zygote):
    findings = [found for found, _ in zygote.run("cases.precision:probed", 2, slow=["bf16", "fp32"])]
    assert findings[0] == findings[1] and not findings[0].chosen


def test_a_run_says_and_writes_down_what_was_decided(zygote, tmp_path):
    done = zygote.paceline(
        "train",
        "--precision",
        "bf16",
        "--ranks",
        2,
        "--threads",
        1,
        "--epochs",
        1,
        "--out",
        "run",
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    notes = [line for line in done.err.splitlines() if "bfloat16" in line]
    assert len(notes) == 1 and notes[0].startswith("note      trains in ")
    warnings = json.loads((tmp_path / "run" / "summary.json").read_text())["warnings"]
    assert notes[0].removeprefix("note      ") in warnings
