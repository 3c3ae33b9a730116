"""The answer follows from the measurements, and warnings are said once."""

from __future__ import annotations

import dataclasses
import json

import pytest

from made_study import NOTICE, make_failed, make_run, make_study, summary
from paceline.report import answer
from paceline.report.notices import notices
from paceline.report.read import load


def group_of(tmp_path, rates: dict, accuracies: dict):
    """A group of single runs with these throughputs and test accuracies, and no laws.json."""
    for p, rate in rates.items():
        made = summary(f"p{p}", "strong", p, 0) | {"samples_per_second": rate, "train_seconds": 1000 / rate}
        make_run(tmp_path / f"p{p}", made | {"test_accuracy": accuracies[p]})
    return load([tmp_path]).groups[0]


@pytest.mark.parametrize(
    ("rates", "accuracies", "expected"),
    [
        ({1: 100, 2: 190, 4: 300}, {1: 0.98, 2: 0.98, 4: 0.98}, 4),
        ({1: 100, 2: 190, 4: 199}, {1: 0.98, 2: 0.98, 4: 0.98}, 2),  # 4 ranks add less than 5 %
        ({1: 100, 2: 190, 4: 300}, {1: 0.98, 2: 0.978, 4: 0.95}, 2),  # 4 ranks lose accuracy
        ({1: 100, 2: 90, 4: 80}, {1: 0.98, 2: 0.98, 4: 0.98}, 1),
        ({2: 100, 4: 180}, {2: 0.98, 4: 0.98}, 4),
    ],
)
def test_the_rule_without_laws(tmp_path, rates, accuracies, expected):
    assert answer.recommended(group_of(tmp_path, rates, accuracies)) == expected


def test_the_recommendation_of_laws_json_comes_first(study):
    group = study.groups[0]
    other = dataclasses.replace(group, law={**group.law, "recommended": 2})
    assert answer.recommended(other) == 2


def test_the_sentences_carry_the_numbers(study):
    strong, weak = answer.answers(study)
    assert strong.bought.startswith("4 ranks train 2.11 times as fast as 1 rank (95 % interval ")
    assert "as many as with 1 rank" in strong.cost
    assert "1,757 updates of the model instead of 7,031" in weak.cost
    assert "−1.7" in weak.cost
    assert strong.advice.startswith("Use 4 ranks")
    assert weak.advice.startswith("Stay with 1 rank")
    assert "law" in strong.law
    assert strong.law.endswith(".")


def test_the_strip_is_about_the_fastest_group_at_its_recommended_p(study):
    assert answer.headline(study).group.key.scaling == "strong"
    assert [figure.value for figure in answer.key_figures(study)] == ["2.11×", "13.4 s", "98.6 %", "4 ranks"]


def test_losing_accuracy_is_said(tmp_path):
    said = answer.answer(group_of(tmp_path, {1: 100, 2: 190, 4: 300}, {1: 0.98, 2: 0.98, 4: 0.95}))
    assert said.advice == (
        "Use 2 ranks: 1.90× the speed of 1 rank, accuracy kept (±0.00 points). "
        "4 ranks are faster (3.00×) but lose accuracy (−3.00 points)."
    )
    assert said.law == answer.NO_LAW


def test_slower_is_called_nothing(tmp_path):
    said = answer.answer(group_of(tmp_path, {1: 100, 2: 90}, {1: 0.98, 2: 0.98}))
    assert said.bought.startswith("Nothing: 2 ranks train 0.90 times as fast")
    assert said.advice.startswith("Stay with 1 rank")


def test_one_run_is_no_comparison(tmp_path):
    study = load([make_run(tmp_path / "run", summary("run", None, 2, 0))])
    (said,) = answer.answers(study)
    assert "mnist_cnn on mnist trained with 2 ranks" in said.bought
    assert "nothing is compared" in said.advice
    assert answer.key_figures(study)[0].label == "Training time"


def test_only_failed_cells_have_no_answer(tmp_path):
    study = load([make_failed(tmp_path / "cell")])
    assert answer.answers(study) == []
    assert answer.key_figures(study) == []


def test_a_warning_is_said_once(study):
    found = notices(study)
    assert len({notice.code for notice in found}) == len(found)
    data = found[0]
    assert (data.code, data.texts) == ("unverified data", [(NOTICE, "all 24 runs")])
    (crowded,) = (notice for notice in found if notice.code == "ranks > cores")
    assert [where for _, where in crowded.texts] == ["6 runs"]


def test_what_is_said_of_a_group_is_not_said_of_its_runs_again(tmp_path):
    folder = make_study(tmp_path / "study")
    codes = [notice.code for notice in notices(load([folder]))]
    for path in folder.rglob("summary.json"):
        said = json.loads(path.read_text())
        said["warnings"] = ["oversubscribed: 4 ranks × 1 thread share 2 cores", "own: of a run"]
        path.write_text(json.dumps(said))
    found = {notice.code: notice.texts for notice in notices(load([folder]))}
    assert "own" in found
    assert ("oversubscribed" in codes) and not any(
        "1 thread share" in text for text, _ in found["oversubscribed"]
    )


def test_refusals_for_the_same_reason_are_one_line(tmp_path):
    study = load([make_study(tmp_path / "study", scalings=("strong",), ranks=(2, 4), repeats=1)])
    (refused,) = (notice for notice in notices(study) if notice.code == "not fitted")
    assert len(refused.texts) == 1
    assert refused.texts[0][0].startswith("amdahl, gustafson and usl: ")


def test_different_machines_are_pointed_out(tmp_path):
    for p, host in ((1, "here"), (2, "there")):
        made = summary(f"p{p}", "strong", p, 0)
        make_run(tmp_path / f"p{p}", made | {"machine": made["machine"] | {"host": host}})
    (notice,) = (n for n in notices(load([tmp_path])) if n.code == "different machines")
    assert "here EPYC 7B13 and there EPYC 7B13" in notice.texts[0][0]


def test_a_notice_needs_no_code(tmp_path):
    made = summary("run", None, 1, 0) | {
        "data_verified": True,
        "data_notice": "",
        "warnings": ["something odd"],
    }
    folder = make_run(tmp_path / "run", made)
    assert [(n.code, n.texts) for n in notices(load([folder]))] == [("note", [("something odd", "run")])]
    assert json.loads((folder / "summary.json").read_text())["warnings"] == ["something odd"]
