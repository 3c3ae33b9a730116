"""The figures of five published pieces of course work, from the times they report.

Every case is computed twice: by the Python functions, and by the command line read back from its JSON.
"""

import json

import pytest

from paceline.cli import main
from paceline.study.laws import analyse, change

HOGWILD = {1: 303.7632, 2: 257.5364, 3: 236.5158, 4: 239.9027, 5: 236.1258}
HOGWILD_ACCURACY = {1: 98.50, 2: 98.63, 3: 98.68, 4: 97.74, 5: 93.03}
AVERAGING = {1: 464.939962, 2: 187.142124, 3: 170.388669, 4: 162.914951, 5: 183.040793}
AVERAGING_ACCURACY = {1: 98.53, 2: 96.54, 3: 95.86, 4: 93.00, 5: 86.43}
NODES = {1: 10694.45, 2: 15169.92, 3: 16879.32}
NODES_BATCHES = {1: 64, 2: 32, 3: 21}


def by_api(times, **also):
    """Through JSON text, as a reader of the file would see it."""
    return json.loads(json.dumps(analyse(times, **also).as_json()))


def by_command(capsys, times=(), *words):
    assert main(["laws", *_pairs(times), *words, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def _pairs(numbers):
    return [f"{p}={number}" for p, number in dict(numbers).items()]


@pytest.fixture(params=["api", "command"])
def analysis_of(request, capsys):
    """analysis_of(times, accuracy=…, batches=…) by one way or the other; both must say the same."""

    def compute(times, **also):
        if request.param == "api":
            return by_api(times, **also)
        options = [word for name, numbers in also.items() for word in (f"--{name}", *_pairs(numbers))]
        return by_command(capsys, times, *options)

    return compute


def warnings_of(analysis, code):
    return [line for line in analysis["warnings"] if line.startswith(f"{code}:")]


def test_both_ways_agree(capsys):
    words = ["--accuracy", *_pairs(HOGWILD_ACCURACY)]
    assert by_command(capsys, HOGWILD, *words) == by_api(HOGWILD, accuracy=HOGWILD_ACCURACY)


def test_hogwild_speedups_and_efficiencies(analysis_of):
    analysis = analysis_of(HOGWILD)
    assert [f"{s:.2f}" for s in analysis["speedup"].values()] == ["1.00", "1.18", "1.28", "1.27", "1.29"]
    assert [f"{e:.2f}" for e in analysis["efficiency"].values()] == ["1.00", "0.59", "0.43", "0.32", "0.26"]
    assert list(analysis["speedup"]) == ["1", "2", "3", "4", "5"]


def test_hogwild_serial_fraction_law_and_advice(analysis_of):
    analysis = analysis_of(HOGWILD, accuracy=HOGWILD_ACCURACY)
    assert [f"{e:.2f}" for e in analysis["serial_fraction"].values()] == ["0.70", "0.67", "0.72", "0.72"]
    assert analysis["law"] == "amdahl"
    low, high = analysis["fits"]["amdahl"]["intervals"]["f"]
    assert low < 0.71 < high
    assert analysis["verdict"].startswith("Amdahl's law applies")
    assert analysis["recommended"] == 3
    assert analysis["refusals"] == []


def test_hogwild_is_not_super_linear_but_loses_accuracy_at_4_and_5(analysis_of):
    analysis = analysis_of(HOGWILD, accuracy=HOGWILD_ACCURACY)
    assert not warnings_of(analysis, "super-linear")
    (lost,) = warnings_of(analysis, "accuracy lost")
    assert "0.76 points at 4 ranks" in lost
    assert "5.47 points at 5 ranks" in lost
    assert "at 2 ranks" not in lost
    assert "at 3 ranks" not in lost


def test_averaging_raises_super_linear(analysis_of):
    analysis = analysis_of(AVERAGING)
    assert f"{analysis['speedup']['2']:.2f}" == "2.48"
    (warning,) = warnings_of(analysis, "super-linear")
    assert warning.startswith("super-linear: check the baseline: 2 ranks are 2.48 times as fast as 1 rank")
    assert "3 ranks" not in warning  # 2.73 is below 3
    assert analysis["law"] is None
    assert "No law applies" in analysis["verdict"]


def test_averaging_loses_accuracy_at_every_p(analysis_of):
    analysis = analysis_of(AVERAGING, accuracy=AVERAGING_ACCURACY)
    (lost,) = warnings_of(analysis, "accuracy lost")
    for said in ("1.99 points at 2", "2.67 points at 3", "5.53 points at 4", "12.10 points at 5"):
        assert said in lost
    assert analysis["recommended"] == 1


def test_fewer_updates_are_flagged(analysis_of):
    """60,000 images in batches of 50 a rank: p ranks make a p-th of the updates."""
    analysis = analysis_of(AVERAGING, updates={p: 15 * (60_000 // (50 * p)) for p in AVERAGING})
    (warning,) = warnings_of(analysis, "updates changed")
    assert "1 rank makes 18,000, 2 ranks 9,000" in warning
    assert "5 ranks 3,600" in warning


def test_nodes_are_slower_and_the_global_batch_is_not_64(analysis_of):
    analysis = analysis_of(NODES, batches=NODES_BATCHES)
    assert f"{analysis['speedup']['2']:.2f}" == "0.70"
    assert f"{analysis['speedup']['3']:.2f}" == "0.63"
    (warning,) = warnings_of(analysis, "global batch changed")
    assert "1 rank × 64 = 64" in warning
    assert "3 ranks × 21 = 63" in warning
    assert "2 ranks × 32" not in warning  # 64 again
    assert analysis["scaling"] == "strong"
    assert analysis["recommended"] == 1
    assert "2 ranks take 1.42 times and 3 ranks take 1.58 times as long" in analysis["verdict"]


def test_a_third_node_with_22_is_flagged_and_with_64_thirds_is_not(analysis_of):
    assert warnings_of(analysis_of(NODES, batches=NODES_BATCHES | {3: 22}), "global batch changed")
    assert not warnings_of(analysis_of(NODES, batches=NODES_BATCHES | {3: 64 / 3}), "global batch changed")


def test_two_processes_on_one_node_are_slower_than_one(analysis_of):
    analysis = analysis_of({1: 10694.45, 2: 11723.22})
    assert f"{analysis['speedup']['2']:.2f}" == "0.91"
    assert [line.partition(":")[0] for line in analysis["refusals"]] == ["amdahl", "gustafson", "usl"]
    assert analysis["recommended"] == 1


def test_one_node_of_32_against_two_of_64_is_neither_strong_nor_weak(analysis_of):
    analysis = analysis_of({1: 100.0, 2: 60.0}, batches={1: 32, 2: 64})
    (warning,) = warnings_of(analysis, "global batch changed")
    assert "neither strong nor weak scaling" in warning
    assert analysis["scaling"] is None


@pytest.fixture(params=["api", "command"])
def change_of(request, capsys):
    def compute(without, with_):
        if request.param == "api":
            return change(without, with_).as_json()
        return by_command(capsys, (), "--change", str(without), str(with_))["change"]

    return compute


def test_checkpoints_cost_one_and_a_quarter_per_cent(change_of):
    found = change_of(9238.13, 9353.68)
    assert f"{found['percent']:+.2f}" == "+1.25"
    assert found["without"] == 9238.13
    assert found["with"] == 9353.68


def test_batch_32_against_256(change_of):
    found = change_of(7170.20, 12142.80)
    assert f"{found['ratio']:.2f}" == "1.69"
    assert f"{change_of(12142.80, 7170.20)['percent']:.1f}" == "-41.0"


def test_times_and_a_change_in_one_command(capsys):
    found = by_command(capsys, HOGWILD, "--change", "9238.13", "9353.68")
    assert found["change"]["percent"] == pytest.approx(1.2508, abs=1e-4)
    assert found["speedup"]["2"] == pytest.approx(1.1795, abs=1e-4)
