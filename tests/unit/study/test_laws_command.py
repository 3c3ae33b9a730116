"""`paceline laws`: one JSON object or a table, and one line for a mistake."""

import json

import pytest

from paceline.cli import main

TIMES = ["1=10.0,10.2,9.9", "2=5.5,5.6,5.4", "4=3.3,3.2,3.25"]


def call(capsys, *words):
    assert main(["laws", *words]) == 0
    return capsys.readouterr().out


def mistake(capsys, *words):
    assert main(["laws", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_json_is_one_object(capsys):
    found = json.loads(call(capsys, *TIMES, "--json"))
    assert found["repeats"] == {"1": 3, "2": 3, "4": 3}
    assert set(found["speedup_interval"]) == {"2", "4"}
    assert "prediction" not in found
    assert "change" not in found


def test_every_option_reaches_the_analysis(capsys):
    options = "--scaling strong --cores 2 --accuracy 1=98.5 2=98.4 4=97 --updates 1=100 2=50 4=25"
    options += " --batches 1=64 2=32 4=15 --threads 1=2 2=1 4=1"
    found = json.loads(
        call(capsys, "--json", *options.split(), "--predict", "8", "--json", "--cores", "2", "--", *TIMES)
    )
    codes = [line.partition(":")[0] for line in found["warnings"]]
    assert codes == [
        "global batch changed",
        "updates changed",
        "threads changed",
        "oversubscribed",
        "accuracy lost",
    ]
    assert found["scaling"] == "strong"
    assert found["prediction"]["ranks"] == 8
    assert (
        found["prediction"]["interval"][0]
        < found["prediction"]["speedup"]
        < found["prediction"]["interval"][1]
    )


def test_a_refused_prediction_is_said_and_no_failure(capsys):
    found = json.loads(call(capsys, *TIMES, "--predict", "9", "--json"))
    assert found["prediction"] is None
    assert found["refusals"][-1].startswith("no prediction for 9 ranks")
    assert "refused     no prediction for 9 ranks" in call(capsys, *TIMES, "--predict", "9")


def test_for_people(capsys):
    text = call(capsys, *TIMES, "--cores", "2", "--predict", "6", "--change", "9238.13", "9353.68")
    lines = text.splitlines()
    assert lines[0].split() == [
        "ranks",
        "speed-up",
        "95",
        "%",
        "interval",
        "efficiency",
        "serial",
        "fraction",
    ]
    assert lines[2].split()[:2] == ["2", "1.82"]
    assert sum(line.startswith("verdict ") for line in lines) == 1  # not broken at 80 columns
    assert any(line.startswith("warning     oversubscribed: 4 ranks share 2 cores") for line in lines)
    assert any(line.startswith("predicted   6 ranks: ") for line in lines)
    assert lines[-1] == "change      +1.25 %: 9238.13 → 9353.68"
    assert "\x1b" not in text


def test_repeats_of_a_change(capsys):
    assert "change      +10.00 % (" in call(capsys, "--change", "10,10.1,10", "11,11.1,11.2")


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "no times: give RANKS=SECONDS such as 1=303.76 2=257.54, or --change WITHOUT WITH"),
        (["1:3"], "time '1:3': give RANKS=NUMBER"),
        (["303.76"], "time '303.76': give RANKS=NUMBER"),
        (["-1=3"], "no option '-1'"),
        (["1=x"], "time '1=x': 'x' is not a number"),
        (["1="], "time '1=': '' is not a number"),
        (["1=3", "1=4"], "time '1=4': 1 came before"),
        (["1=0"], "each number above 0"),
        (["1=3", "--accuracy", "1"], "--accuracy '1': give RANKS=NUMBER"),
        (["1=3", "--scaling", "medium"], "strong"),
        (["1=3", "--jsn"], "did you mean '--json'?"),
        (["--predict", "4", "--change", "1", "2"], "--predict needs times"),
        (["--change", "1", "two"], "--change 'two'"),
        (["--change", "1"], "--change"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(capsys, words, said):
    assert said in mistake(capsys, *words)
