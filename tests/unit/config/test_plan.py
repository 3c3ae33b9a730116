"""What follows from a configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.config import RunConfig, make_plan
from paceline.config.plan import dealt
from paceline.errors import ConfigError


def test_per_rank_and_global_batch_are_the_same_thing_said_twice():
    by_rank = make_plan(RunConfig(ranks=4, batch=16, epochs=2), 1000, 8)
    by_step = make_plan(RunConfig(ranks=4, global_batch=64, epochs=2), 1000, 8)
    assert by_rank == by_step
    assert (by_rank.global_batch, by_rank.batch, by_rank.steps_per_epoch, by_rank.steps) == (64, 16, 16, 32)
    assert (by_rank.threads_per_rank, by_rank.samples) == (2, 2000)


def test_steps_instead_of_epochs():
    plan = make_plan(RunConfig(global_batch=64, steps=20), 1000, 1)
    assert (plan.epochs, plan.steps, plan.samples) == (2, 20, 1000 + 4 * 64)


@pytest.mark.parametrize(("rule", "lr"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_learning_rate_rules(rule, lr):
    base = {} if rule == "none" else {"lr_rule": rule, "lr_base_batch": 32}
    assert make_plan(RunConfig(lr=0.1, ranks=4, batch=32, **base), 1000, 4).learning_rate == pytest.approx(lr)


@pytest.mark.parametrize(
    ("config", "warmup"),
    [
        (RunConfig(steps=100), 0),
        (RunConfig(steps=100, schedule="one_cycle"), 25),
        (RunConfig(steps=100, schedule="one_cycle", warmup=0.1), 10),
        (RunConfig(steps=100, schedule="cosine", warmup=0.05), 5),
    ],
)
def test_warm_up(config, warmup):
    assert make_plan(config, 1000, 1).warmup_steps == warmup


def test_a_step_larger_than_the_data_is_refused():
    with pytest.raises(ConfigError, match="a step of 128 samples is more than the 100"):
        make_plan(RunConfig(ranks=2, batch=64), 100, 2)


@pytest.mark.parametrize(
    ("config", "cores", "expected"),
    [
        (RunConfig(ranks=4), 2, "more ranks than cores cannot make this faster"),
        (RunConfig(ranks=2, threads=2), 2, "2 ranks × 2 threads share 2 cores"),
        (RunConfig(ranks=3, global_batch=64), 8, "dealt as 22, 21, 21"),
        (RunConfig(target=0.9), 2, "the test set decides"),
    ],
)
def test_what_a_user_should_know_is_said(config, cores, expected):
    plan = make_plan(config, 1000, cores)
    assert any(expected in notice for notice in plan.notices)
    assert any(expected in line for line in plan.lines(config))


def test_nothing_is_said_without_need():
    assert make_plan(RunConfig(ranks=2), 1000, 2).notices == ()


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_dealing_loses_nothing_and_is_even(batch, ranks):
    sizes = dealt(batch, ranks)
    assert sum(sizes) == batch and len(sizes) == ranks
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 3000), st.integers(1, 500), st.integers(1, 5), st.integers(1, 8))
def test_every_epoch_has_every_sample(size, batch, epochs, ranks):
    if not ranks <= batch <= size:
        return
    plan = make_plan(RunConfig(ranks=ranks, global_batch=batch, epochs=epochs), size, 8)
    assert plan.samples == size * epochs
    assert (plan.steps_per_epoch - 1) * batch < size <= plan.steps_per_epoch * batch
