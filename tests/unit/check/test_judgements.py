"""The judgements on observations made up for them: what real ranks show seldom, or cannot show exactly."""

from __future__ import annotations

import random

import pytest

from paceline.check import cost, gradients, replicas, samples
from paceline.check.judge import judge
from paceline.check.observations import Pass, Rank, combined, gather, read


def vector(seed):
    return [random.Random(seed * 100 + i).gauss(0, 1) for i in range(8)]


def observed(own, used, *, samples=(8, 8), reduction="mean", ratio=1.0, backwards=1):
    """Two or more ranks with one step of gradients."""
    ranks = []
    for number, (mine, gradient) in enumerate(zip(own, used, strict=True)):
        each = {"ratio": ratio, "reduction": reduction, "samples": samples[number]}
        facts = {"own": mine, "used": gradient, "backwards": [each] * backwards}
        ranks.append(Rank(number, gradients={0: facts}, replicas={0: vector(9), 1: vector(10 + number)}))
    return ranks


OWN = [vector(1), vector(2)]
MEAN = combined(OWN, [0.5, 0.5])
SUM = combined(OWN, [1, 1])


@pytest.mark.parametrize(
    ("used", "facts", "factor"),
    [
        (MEAN, {}, 1), (SUM, {}, 2), (combined(OWN, [0.25, 0.25]), {}, 0.5), (combined(OWN, [2, 2]), {}, 4),
        (SUM, {"ratio": 0.5}, 1), (MEAN, {"ratio": 0.5}, 0.5),
        (SUM, {"reduction": "sum"}, 1), (MEAN, {"reduction": "sum"}, 0.5),
        (SUM, {"reduction": "sum", "ratio": 1 / 16}, 1), (MEAN, {"reduction": "sum", "ratio": 1 / 8}, 1),
        (SUM, {"reduction": "sum", "ratio": 1 / 8}, 2),
        (MEAN, {"backwards": 4}, 1), (MEAN, {"backwards": 4, "ratio": 0.25}, 1), (SUM, {"backwards": 4, "ratio": 0.25}, 2),
        (MEAN, {"ratio": None}, 1), (SUM, {"ratio": None, "reduction": None}, 2), (MEAN, {"ratio": 1.037}, 1),
    ],
)  # fmt: skip
def test_the_factor_against_one_process(used, facts, factor):
    found = gradients._factor(gradients.steps(observed(OWN, [used, used], **facts))[0])
    assert found == pytest.approx(factor)


@pytest.mark.parametrize("scale", [0.123, 0.7, 3.3])
def test_a_gradient_that_was_clipped_out_of_sight_is_not_called_wrong(scale):
    used = [scale * x for x in MEAN]
    assert gradients.wrong_scale(observed(OWN, [used, used])) is None


def test_a_mean_by_samples_is_right():
    used = combined(OWN, [0.75, 0.25])
    ranks = observed(OWN, [used, used], samples=(24, 8))
    assert gradients.wrong_scale(ranks) is None and gradients.never_averaged(ranks) is None


def test_own_gradients_are_a_finding_only_where_replicas_stay_apart():
    ranks = observed(OWN, OWN)
    assert gradients.never_averaged(ranks)
    for rank in ranks:
        rank.replicas[2] = vector(30)  # they met again
    assert gradients.never_averaged(ranks) is None and replicas.replicas_drift(ranks) is None


def test_the_same_samples_everywhere_leave_nothing_to_average():
    assert gradients.never_averaged(observed([OWN[0]] * 2, [OWN[0]] * 2)) is None


def test_last_bits_are_no_drift_and_more_is():
    base = vector(1)
    for difference, drifts in [(1e-8, False), (1e-5, True)]:
        ranks = [Rank(r, replicas={0: base, 5: [x * (1 + r * difference) for x in base]}) for r in (0, 1)]
        assert bool(replicas.replicas_drift(ranks)) is drifts
    assert "agree up to step 4" in replicas.replicas_drift(ranks).evidence


def test_a_rank_that_ran_out_early_has_the_states_of_the_others():
    states = [vector(k) for k in range(6)]
    long = Rank(0, replicas=dict(enumerate(states)))
    short = Rank(
        1, replicas=dict(enumerate([*states[:3], states[4]]))
    )  # it joined again after two steps of rank 0
    assert replicas.replicas_drift([long, short]) is None
    short.replicas[3] = vector(50)
    assert replicas.replicas_drift([long, short])


def test_statistics_are_compared_look_by_look():
    same = [("eval", step, vector(step)) for step in (5, 10)]
    ranks = [Rank(0, norms=same), Rank(1, norms=[("eval", step - 1, sketch) for _, step, sketch in same])]
    assert replicas.batchnorm_differs(ranks) is None
    ranks[1].norms[1] = ("eval", 9, vector(3))
    assert "(step 10)" in replicas.batchnorm_differs(ranks).evidence


def one_pass(number=1, *, taken, samples=20, purpose="training", **facts):
    known = {
        "chosen": samples,
        "identity": 7,
        "subset": 0,
        "batches": 5,
        "drop_last": False,
        "sampler": "S",
        "set_epoch": False,
    }
    return Pass(number=number, samples=samples, purpose=purpose, taken=taken, **(known | facts))


def with_passes(*of_ranks):
    return [Rank(number, passes=list(passes)) for number, passes in enumerate(of_ranks)]


def test_equal_indices_of_different_data_sets_are_different_samples():
    a, b = one_pass(taken=((0, 1), (2, 3))), one_pass(taken=((0, 1), (2, 3)), identity=8)
    assert samples.same_samples(with_passes([a], [b])) is None
    assert samples.same_samples(with_passes([a], [a]))


@pytest.mark.parametrize(
    ("batches", "drop_last", "whole"),
    [(10, False, True), (5, False, False), (9, True, False), (10, True, True)],
)
def test_an_epoch_of_the_whole_set_is_seen_though_its_beginning_is_not_shared(batches, drop_last, whole):
    a, b = (one_pass(taken=(((r, r + 2)),), batches=batches, drop_last=drop_last) for r in (0, 5))
    assert bool(samples.same_samples(with_passes([a], [b]))) is whole


def test_halves_that_were_chosen_before_are_no_whole_set():
    halves = [one_pass(taken=((r, r + 2),), chosen=10, batches=5, subset=1 + r) for r in (0, 1)]
    assert samples.same_samples(with_passes(*[[half] for half in halves])) is None
    same = [one_pass(taken=((r, r + 2),), chosen=10, batches=5, subset=1) for r in (0, 5)]
    assert samples.same_samples(with_passes(*[[each] for each in same]))


def test_a_few_repeated_samples_are_a_padded_epoch():
    a, b = (one_pass(taken=(part,), batches=1) for part in (tuple(range(10)), (*range(10, 19), 0)))
    assert samples.same_samples(with_passes([a], [b])) is None


def test_inputs_that_are_all_alike_tell_nothing():
    assert samples.same_samples([Rank(r, rows={0: [5, 5, 5]}) for r in (0, 1)]) is None


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([[0, 2, 4], [1, 3]], None), ([[0, 2, 4], [1, 3, 0]], "1 counted twice"), ([[0, 2], [1, 3]], "4 of 5 samples"),
        ([[0, 1, 2, 3, 4]] * 2, None),
    ],
)  # fmt: skip
def test_the_evaluation_is_exact_where_every_sample_counts_once(parts, found):
    passes = [[one_pass(taken=(tuple(p),), samples=5, purpose="evaluation", exhausted=True)] for p in parts]
    finding = samples.padded_evaluation(with_passes(*passes))
    assert (finding is None) if found is None else found in finding.evidence


def test_an_evaluation_that_was_left_early_is_not_judged():
    passes = [[one_pass(taken=((0, 1),), purpose="evaluation", exhausted=False)] for _ in range(2)]
    assert samples.padded_evaluation(with_passes(*passes)) is None


def test_one_batch_an_epoch_has_no_order():
    passes = [one_pass(n, taken=(tuple(range(20)),), batches=1) for n in (1, 2)]
    assert samples.no_reshuffle([Rank(0, passes=passes)]) is None


def test_the_same_batch_in_every_step_is_no_epoch():
    assert samples.no_reshuffle([Rank(0, rows={step: [1, 2] for step in range(10)})]) is None


def test_a_message_a_parameter_is_one_in_training_not_at_the_start():
    calls = [("broadcast", size) for size in (10, 20, 30, 40)]
    ranks = [Rank(r, sizes=[10, 20, 30, 40], calls={0: calls, 1: [("all_reduce", 100)]}) for r in (0, 1)]
    assert cost.one_collective_per_parameter(ranks) is None
    ranks[0].calls[2] = calls
    assert "4 calls, most of broadcast" in cost.one_collective_per_parameter(ranks).evidence


def test_threads_are_compared_with_cores():
    def ranks(threads, cores):
        return [Rank(r, threads={"threads": threads, "cores": cores, "local_ranks": 2}) for r in (0, 1)]

    assert cost.threads_fight(ranks(1, 1)) is None  # more ranks than cores is another matter
    assert cost.threads_fight(ranks(2, 4)) is None
    assert "4 threads on 2 usable cores" in cost.threads_fight(ranks(2, 2)).evidence


def test_parameters_in_shared_memory_are_one_replica():
    ranks = [Rank(r, shared=True, steps=4, replicas={0: vector(r), 1: vector(r + 5)}) for r in (0, 1)]
    assert judge(ranks) == []


def test_causes_are_named_without_their_consequences():
    ranks = observed(OWN, OWN)
    assert [f.name for f in judge([*ranks])] == ["never_averaged"]
    for rank in ranks:
        rank.joined = (0, 1)
    assert [f.name for f in judge(ranks)] == ["same_rank"]


def test_lines_come_back_and_a_cut_one_is_left_out(tmp_path):
    (tmp_path / "observed-0.jsonl").write_text(
        '{"kind": "joining", "rank": 0, "size": 2}\n{"kind": "calls", "step": 3, "calls": [["all_reduce", 5]]}\n{"kind": "jo'
    )
    first, second = read(tmp_path, 2)
    assert (first.joining, first.joined, first.calls, first.steps) == (
        (0, 2),
        None,
        {3: [("all_reduce", 5)]},
        4,
    )
    assert second == Rank(1)
    assert gather(0, []) == Rank(0)
