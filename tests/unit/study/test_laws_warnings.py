"""Each warning is raised where it should be, and only there."""

import pytest

from paceline.study.laws import analyse

TIMES = {1: 10.0, 2: 5.5, 4: 3.1}


def codes(times=None, **also):
    return [line.partition(":")[0] for line in analyse(times or TIMES, **also).warnings]


def warning(code, times=None, **also):
    (found,) = [line for line in analyse(times or TIMES, **also).warnings if line.startswith(f"{code}:")]
    return found


def test_a_fair_comparison_has_none():
    fair = {
        "cores": 4,
        "accuracy": {1: 0.98, 2: 0.981, 4: 0.979},
        "updates": dict.fromkeys(TIMES, 100),
        "batches": {1: 64, 2: 32, 4: 16},
        "threads": dict.fromkeys(TIMES, 1),
    }
    assert codes(scaling="strong", **fair) == []
    assert codes({p: [t, 1.01 * t] for p, t in TIMES.items()}, **fair) == []


def test_super_linear_without_repeats_allows_five_per_cent():
    assert codes({1: 10, 2: 4.8}) == []
    assert codes({1: 10, 2: 4.7}) == ["super-linear"]


def test_super_linear_with_repeats_asks_the_interval():
    assert codes({1: [10, 10.1, 10.2], 2: [4.9, 4.95, 5.0]}) == ["super-linear"]  # 2.04, and known well
    assert "super-linear" not in codes({1: [10, 12, 9], 2: [4.2, 5.9, 4.1]})  # 2.2, but it may be 1.9


def test_super_linear_names_only_the_ranks_above_the_ideal():
    text = warning("super-linear", {1: 10, 2: 4, 4: 2, 8: 2})
    assert "2 ranks are 2.50 times as fast as 1 rank and 4 ranks are 5.00 times as fast as 1 rank" in text
    assert "8 ranks" not in text


def test_global_batch_in_strong_scaling():
    assert "2 ranks × 31 = 62; less than 5 % apart" in warning(
        "global batch changed", batches={1: 64, 2: 31, 4: 16}
    )
    assert codes(batches={1: 128, 2: 128 / 2, 3: 128 / 3}) == []  # a mean, where dealt unevenly


def test_global_batch_in_weak_scaling_is_said_as_such():
    text = warning("global batch changed", batches=dict.fromkeys(TIMES, 32), scaling="weak")
    assert "1 rank × 32 = 32 samples an update, 2 ranks × 32 = 64 and 4 ranks × 32 = 128" in text
    assert "that is weak scaling, where accuracy has to be compared too" in text


def test_a_declaration_that_the_batches_contradict():
    text = warning("global batch changed", batches=dict.fromkeys(TIMES, 32), scaling="strong")
    assert text.endswith("that is weak scaling, not strong")


def test_updates():
    text = warning("updates changed", updates={1: 1875, 2: 938, 4: 469})
    assert "1 rank makes 1,875, 2 ranks 938 and 4 ranks 469" in text
    assert "fewer updates" in text
    assert "fewer updates" not in warning("updates changed", updates={1: 100, 2: 200})


def test_threads():
    text = warning("threads changed", threads={1: 2, 2: 1, 4: 1})
    assert "2 at 1 rank, 1 at 2 ranks and 1 at 4 ranks" in text


def test_oversubscribed():
    assert codes(cores=4) == []
    assert "oversubscribed: 4 ranks share 2 cores" in warning("oversubscribed", cores=2)
    assert "2 and 4 ranks share 1 core;" in warning("oversubscribed", cores=1)
    text = warning("oversubscribed", cores=4, threads=dict.fromkeys(TIMES, 2))
    assert "4 ranks with 2 threads each share 4 cores" in text


@pytest.mark.parametrize("scale", [1, 100])
def test_accuracy_in_fractions_or_per_cent(scale):
    text = warning("accuracy lost", accuracy={1: 0.985 * scale, 2: 0.981 * scale, 4: 0.97 * scale})
    assert "1.50 points at 4 ranks below 1 rank" in text
    assert "2 ranks" not in text  # 0.4 points


def test_accuracy_with_repeats_asks_the_interval():
    steady = {1: [0.980, 0.981, 0.982], 2: [0.970, 0.971, 0.972]}
    assert "1.00 points at 2 ranks (0.77 to 1.23) below" in warning("accuracy lost", accuracy=steady)
    spread = {1: [0.980, 0.981, 0.982], 2: [0.990, 0.971, 0.940]}
    assert codes(accuracy=spread) == ["noisy"]
    assert "1.00 points at 2 ranks" in warning("noisy", accuracy=spread)


def test_zero_accuracy_is_a_number_like_others():
    assert codes(accuracy={1: 0.5, 2: 0.0}) == ["accuracy lost"]


def test_noisy_times():
    text = warning("noisy", {1: [10.0, 8.0, 12.0], 2: [9.0, 9.5, 8.0]})
    assert text.startswith("noisy: the repeats put the speed-up anywhere from 0.")
    assert codes({1: [10.0, 10.01, 10.02], 2: [10.0, 10.02, 10.01]}) == []  # known to be 1: not noise


def test_missing_baseline():
    assert warning("baseline missing", {2: 10, 4: 6}).endswith("are relative to 2 ranks")


def test_numbers_for_ranks_without_a_time_are_left_aside():
    assert (
        codes(updates={1: 5, 8: 7}, batches={1: 64, 8: 64}, threads={1: 1, 8: 2}, accuracy={1: 0.9, 8: 0.1})
        == []
    )
