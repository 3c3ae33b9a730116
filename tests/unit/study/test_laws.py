"""The analysis as a whole: its numbers, its JSON, its verdict, its refusals and the mistakes it names."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.study.laws import analyse, change
from paceline.study.laws_fit import LAWS

TIMES = {1: 10.0, 2: 5.5, 4: 3.25, 8: 2.125}  # Amdahl with f = 0.1


def curve(law, ranks, *parameters):
    return {p: 100 / float(LAWS[law].speedup(np.float64(p), *parameters)) for p in ranks}


def noisy(times, spread=0.01, repeats=3, seed=0):
    rng = np.random.default_rng(seed)
    return {p: list(t * np.exp(spread * rng.standard_normal(repeats))) for p, t in times.items()}


def test_speedup_efficiency_and_serial_fraction():
    found = analyse(TIMES)
    assert found.speedup == pytest.approx({1: 1, 2: 20 / 11, 4: 40 / 13, 8: 80 / 17})
    assert found.efficiency == pytest.approx({1: 1, 2: 10 / 11, 4: 10 / 13, 8: 10 / 17})
    assert found.serial_fraction == pytest.approx({2: 0.1, 4: 0.1, 8: 0.1})
    assert found.speedup_interval == {}


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.integers(1, 32), st.floats(1e-2, 1e4), min_size=1, max_size=6), st.floats(1e-3, 1e3)
)
def test_the_unit_of_time_does_not_matter(times, unit):
    here, there = analyse(times), analyse({p: t * unit for p, t in times.items()})
    assert there.speedup == pytest.approx(here.speedup)
    assert there.efficiency == pytest.approx(here.efficiency)
    assert there.serial_fraction == pytest.approx(here.serial_fraction, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.integers(1, 32), st.lists(st.floats(1e-2, 1e4), min_size=1, max_size=4), min_size=1, max_size=6
    )
)
def test_any_times_give_sentences_and_json(times):
    for scaling in (None, "strong", "weak"):
        found = analyse(times, scaling=scaling, cores=4)
        assert json.loads(json.dumps(found.as_json(), allow_nan=False)) == found.as_json()
        assert found.verdict.endswith(".")
        assert found.recommended in times


def test_order_of_the_arguments_does_not_matter():
    assert analyse(dict(reversed(TIMES.items()))).as_json() == analyse(TIMES).as_json()


def test_repeats_give_the_median_and_an_interval():
    found = analyse({1: [10.0, 10.4, 9.9], 2: [5.0, 5.3, 5.1]})
    assert found.speedup[2] == pytest.approx(10.4 / 5.3)
    low, high = found.speedup_interval[2]
    assert low < found.speedup[2] < high
    assert found.repeats == {1: 3, 2: 3}


def test_json_has_what_its_readers_use():
    found = analyse(noisy(TIMES), cores=8, scaling="strong").as_json()
    assert set(found) >= {
        "speedup",
        "speedup_interval",
        "efficiency",
        "serial_fraction",
        "fits",
        "verdict",
        "warnings",
    }
    assert set(found) >= {"refusals", "law", "knee", "recommended", "scaling", "baseline", "repeats"}
    assert set(found["fits"]) == {"amdahl", "gustafson", "usl"}
    assert set(found["fits"]["usl"]["parameters"]) == {"sigma", "kappa"}
    assert list(found["speedup"]) == ["1", "2", "4", "8"]
    assert list(found["serial_fraction"]) == ["2", "4", "8"]


def test_constant_serial_fraction_is_amdahl():
    found = analyse(noisy(TIMES), scaling="strong", cores=8)
    assert found.law == "amdahl"
    assert found.verdict.startswith(
        "Amdahl's law applies: the work is fixed and the serial fraction stays near 0.1"
    )
    assert "gets beyond" in found.verdict
    assert "Use 8 ranks: 4." in found.verdict


def test_growing_overhead_is_usl():
    found = analyse(noisy(curve("usl", (1, 2, 4, 8), 0.02, 0.02)), scaling="strong", cores=8)
    assert found.law == "usl"
    assert "serial fraction grows from" in found.verdict
    assert "an overhead that Amdahl's law leaves out, with the maximum near p = 7" in found.verdict
    assert found.knee == pytest.approx(7, abs=0.5)


UNSURE = {1: [10.0, 14.0, 9.0], 2: [8.0, 9.0, 13.0], 4: [9.0, 15.0, 8.0]}


def test_what_the_repeats_do_not_show_is_not_recommended():
    found = analyse(UNSURE, scaling="strong")
    assert found.speedup[2] > 1 > found.speedup_interval[2][0]
    assert found.law is None
    assert found.recommended == 1
    assert "the repeats do not show that anything is faster than 1 rank: 2 ranks 0." in found.verdict
    assert found.verdict.endswith("Stay with 1 rank, or repeat more on an idle machine.")


def test_a_rank_count_that_is_surely_faster_is_recommended_before_one_that_may_be():
    found = analyse({1: [10.0, 10.1, 9.9], 2: [6.0, 6.1, 5.9], 4: [2.0, 9.0, 20.0]}, scaling="strong")
    assert found.speedup_interval[2][0] > 1 > found.speedup_interval[4][0]
    assert found.recommended == 2
    assert "Use 2 ranks: 1.67 times as fast at an efficiency of 0.83, the fastest" in found.verdict


def test_turning_back_is_usl_even_with_one_measurement_each():
    """One degree of freedom leaves the F-test no power; that 8 ranks are slower than 4 needs none."""
    found = analyse({1: 10.0, 2: 5.5, 4: 4.4, 8: 6.5}, scaling="strong")
    assert found.law == "usl"
    assert found.recommended == 4


def test_growing_overhead_without_a_fourth_point_is_said():
    found = analyse({1: 10.0, 2: 5.5, 4: 5.1})
    assert found.law == "amdahl"
    assert "an overhead that this law leaves out" in found.verdict
    assert [line.partition(":")[0] for line in found.refusals] == ["usl"]


def test_weak_scaling_is_gustafson():
    found = analyse(noisy(curve("gustafson", (1, 2, 4, 8), 0.1)), scaling="weak", cores=8)
    assert found.law == "gustafson"
    assert "grows with the ranks (weak scaling), each further rank adds 0.90 of a rank" in found.verdict


def test_weak_scaling_that_bends_is_usl():
    found = analyse(noisy(curve("usl", (1, 2, 4, 8), 0.1, 0.01)), scaling="weak")
    assert found.law == "usl"
    assert "Gustafson's law leaves out" in found.verdict


def test_scaling_follows_from_the_batches():
    assert analyse(TIMES, batches=dict.fromkeys(TIMES, 32)).scaling == "weak"
    assert analyse(TIMES, batches={p: 64 / p for p in TIMES}).scaling == "strong"
    assert analyse(TIMES, batches={1: 32, 2: 64}).scaling is None
    assert analyse(TIMES).scaling is None
    assert analyse(TIMES, batches={1: 32}, scaling="weak").scaling == "weak"


def test_ranks_beyond_the_cores_are_blamed_on_the_machine():
    found = analyse({1: 10.0, 2: 5.2, 4: 5.3, 8: 5.9}, cores=2, scaling="strong")
    assert "but 4 and 8 ranks share 2 cores: there the curve is the machine's" in found.verdict
    assert found.recommended == 2


def test_nothing_gained():
    found = analyse({1: 10.0, 2: 12.0, 4: 11.0})
    assert found.law is None
    assert found.verdict == (
        "No law applies, for nothing is faster than 1 rank: 2 ranks take 1.20 times and 4 ranks take 1.10 "
        "times as long. Stay with 1 rank."
    )


def test_advice_is_the_fewest_ranks_near_the_fastest():
    assert analyse({1: 10.0, 2: 6.0, 4: 5.8}).recommended == 2
    assert analyse({1: 10.0, 2: 6.0, 4: 5.6}).recommended == 4
    assert analyse({1: 10.0, 2: 9.8}).verdict.endswith("Stay with 1 rank: nothing gains 5 %.")


def test_advice_leaves_out_what_loses_accuracy():
    found = analyse(TIMES, accuracy={1: 0.98, 2: 0.98, 4: 0.95, 8: 0.90})
    assert found.recommended == 2
    assert found.verdict.endswith("the fastest that keeps the accuracy; 4 and 8 ranks lose accuracy.")
    alone = analyse(TIMES, accuracy={1: 0.98, 2: 0.9, 4: 0.9, 8: 0.9})
    assert alone.verdict.endswith("Stay with 1 rank; 2, 4 and 8 ranks lose accuracy.")


def test_two_points_are_not_fitted():
    found = analyse({1: 10.0, 2: 6.0})
    assert found.fits == {}
    assert len(found.refusals) == 3
    assert "it takes 3 values of p for a fit that could fail" in found.refusals[0]
    assert found.verdict.startswith(
        "2 values of p cannot tell one law from another; the serial fraction is 0.20"
    )


def test_one_point_compares_nothing():
    found = analyse({4: [3.0, 3.1]})
    assert found.speedup == {4: 1.0}
    assert found.recommended == 4
    assert found.verdict == "Only p = 4 was measured: there is nothing to compare."


def test_without_one_rank_the_smallest_is_the_baseline():
    found = analyse({2: 10.0, 4: 6.0, 8: 5.0, 16: 5.0})
    assert found.baseline == 2
    assert found.speedup == pytest.approx({2: 1, 4: 10 / 6, 8: 2, 16: 2})
    assert found.efficiency == pytest.approx({2: 1, 4: 5 / 6, 8: 0.5, 16: 0.25})
    assert found.serial_fraction == {}
    assert found.fits == {}
    assert all("1 rank was not measured" in line for line in found.refusals)


def test_prediction():
    found = analyse(noisy(TIMES, repeats=5), cores=16)
    value, (low, high) = found.predict(16)
    assert low < 1 / (0.1 + 0.9 / 16) < high
    assert low < value < high
    with pytest.raises(ConfigError, match="not stretched beyond twice"):
        found.predict(17)
    with pytest.raises(ConfigError, match="no law applies to these times"):
        analyse({1: 10.0, 2: 6.0}).predict(4)


def test_change():
    found = change([10.0, 10.2, 9.9], [11.0, 11.3, 10.9]).as_json()
    assert found["percent"] == pytest.approx(10.101, abs=1e-3)
    low, high = found["percent_interval"]
    assert low < found["percent"] < high
    assert change(2.0, 1.0).as_json() == {
        "without": 2.0,
        "with": 1.0,
        "ratio": 0.5,
        "relative": -0.5,
        "percent": -50.0,
        "percent_interval": None,
    }


@pytest.mark.parametrize(
    "times, also, said",
    [
        ({}, {}, "no times: give at least one"),
        ({100_001: 3.0}, {}, "ranks are 1 to 100,000"),
        ({1: 0.0}, {}, "time 1=0: ranks are 1 to 100,000, each number above 0"),
        ({0: 1.0}, {}, "time 0=1: ranks are 1 to 100,000"),
        ({1: float("nan")}, {}, "time 1=nan"),
        ({1: [3.0, float("inf")]}, {}, "time 1=3,inf"),
        ({1: []}, {}, "time 1="),
        ({1: 1.0}, {"accuracy": {1: -0.5}}, "accuracy 1=-0.5: .* each number 0 or more"),
        ({1: 1.0}, {"batches": {2: 0}}, "batch 2=0"),
        ({1: 1.0}, {"scaling": "stong"}, "scaling 'stong': there is strong and weak"),
        ({1: 1.0}, {"cores": 0}, "cores 0: at least 1"),
    ],
)
def test_mistakes_are_one_line(times, also, said):
    with pytest.raises(ConfigError, match=said) as caught:
        analyse(times, **also)
    assert "\n" not in str(caught.value)
