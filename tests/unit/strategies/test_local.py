"""Rounds of local steps: when they end, what is sent, and what the average is."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases.strategies import batch, model, plain, sgd
from paceline.comm.collectives import Collective
from paceline.comm.links.thread import in_threads
from paceline.errors import ConfigError
from paceline.registry import COLLECTIVES
from paceline.strategies._periods import Period, parse_period
from paceline.strategies._quantised import averaged

COUNTS = [12] * 9


def ends(period: Period, steps: int) -> list[int]:
    """The steps (from 1) after which replicas agree."""
    found = []
    for step in range(1, steps + 1):
        if period.step():
            found.append(step)
            period.agreed()
    return found


def test_a_period_begins_cautiously():
    assert ends(Period(8, 3, 2, adaptive=False), 30) == [1, 2, 3, 5, 9, 17, 25]
    assert ends(Period(8, 0, 0, adaptive=False), 20) == [8, 16]
    assert ends(Period(None, 2, 0, adaptive=False), 20) == [1, 2]


@given(st.integers(1, 20), st.integers(0, 5), st.integers(0, 6), st.integers(1, 80))
def test_every_step_is_in_one_round_and_none_is_longer_than_asked(every, synchronous, warmup, steps):
    period = Period(every, synchronous, warmup, adaptive=False)
    found = [0, *ends(period, steps)]
    lengths = [b - a for a, b in itertools.pairwise(found)]
    assert all(1 <= length <= every for length in lengths)
    assert found[-1] + period.since == steps
    assert sum(int(k) * n for k, n in period.lengths.items()) == found[-1]


def test_an_adaptive_period_follows_the_drift():
    period = Period(8, 0, 0, adaptive=True)
    for drift, length in ((2.0, 4), (2.0, 2), (0.5, 2), (0.1, 4), (0.1, 8), (0.1, 8)):
        period.agreed(drift)
        assert period.length == length


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "week"])
def test_a_period_is_steps_or_an_epoch(value):
    with pytest.raises(ConfigError, match="number of steps"):
        parse_period("local_sgd", value)


def test_agreeing_after_every_step_is_synchronous_training(zygote):
    wanted, _ = plain(COUNTS)
    ranks = zygote.run(
        "cases.strategies:train", 3, name="local_sgd", counts=COUNTS, options={"sync_every": 1}
    )
    for got, want in zip(ranks[0]["parameters"], wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert ranks[0]["messages"] == [1] * 9


@pytest.mark.parametrize("name", ["local_sgd", "diloco"])
def test_a_round_is_one_message_whatever_the_number_of_parameters(zygote, name):
    for rank in zygote.run("cases.strategies:train", 2, name=name, counts=COUNTS, options={"sync_every": 4}):
        assert rank["messages"] == [0, 0, 0, 1, 0, 0, 0, 1, 0]
        assert rank["account"]["steps_between_agreements"] == {"1": 1, "4": 2}


def test_average_is_another_word_for_sync_every(zygote):
    (one, _) = zygote.run(
        "cases.strategies:train", 2, name="local_sgd", counts=COUNTS, options={"average": "epoch"}
    )
    assert one["messages"] == [0] * 9
    assert one["account"]["steps_between_agreements"] == {"9": 1}


def by_hand(ranks: int, every: int, momentum: str) -> list[torch.Tensor]:
    """Local SGD as its definition says it: lists of models, and means."""
    nets = [model() for _ in range(ranks)]
    own = [sgd(net.parameters()) for net in nets]
    for number, count in enumerate(COUNTS):
        images, labels = batch(number, count)
        share = count // ranks
        for rank in range(ranks):
            mine = slice(rank * share, (rank + 1) * share)
            own[rank].zero_grad()
            torch.nn.functional.cross_entropy(nets[rank](images[mine]), labels[mine]).backward()
            own[rank].step()
        if (number + 1) % every == 0 or number == len(COUNTS) - 1:
            _mean_([list(net.parameters()) for net in nets])
            velocities = [[s["momentum_buffer"] for s in o.state.values()] for o in own]
            if momentum == "average":
                _mean_(velocities)
            if momentum == "zero":
                for velocity in itertools.chain(*velocities):
                    velocity.zero_()
    return [p.detach() for p in nets[0].parameters()]


def _mean_(replicas: list[list[torch.Tensor]]) -> None:
    with torch.no_grad():
        for same in zip(*replicas, strict=True):
            mean = torch.stack([t.detach() for t in same]).mean(0)
            for tensor in same:
                tensor.copy_(mean)


@pytest.mark.parametrize("momentum", ["own", "average", "zero"])
def test_rounds_are_what_their_definition_says(zygote, momentum):
    ranks = zygote.run(
        "cases.strategies:train",
        3,
        name="local_sgd",
        counts=COUNTS,
        options={"sync_every": 4, "momentum": momentum},
    )
    for got, want in zip(ranks[0]["parameters"], by_hand(3, 4, momentum), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_diloco_without_an_outer_optimizer_is_local_sgd(zygote):
    ranks = zygote.run(
        "cases.strategies:train",
        3,
        name="diloco",
        counts=COUNTS,
        options={"sync_every": 4, "outer_lr": 1.0, "outer_momentum": 0.0},
    )
    for got, want in zip(ranks[0]["parameters"], by_hand(3, 4, "own"), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_fragments_take_turns_and_none_is_forgotten(zygote):
    options = {"sync_every": 4, "fragments": 2, "outer_lr": 1.0, "outer_momentum": 0.0}
    for rank in zygote.run("cases.strategies:train", 2, name="diloco", counts=COUNTS, options=options):
        assert rank["messages"] == [0, 1, 0, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("message", "error"), [("float32", 1e-5), ("bf16", 4e-3), ("fp16", 5e-4), ("int8", 5e-4)]
)
def test_what_rounding_loses_is_sent_later(message, error):
    """The mean of many averages is closer than one message can say; bf16's and fp16's are rounded themselves."""

    def rank(world) -> tuple[torch.Tensor, torch.Tensor]:
        collective: Collective = COLLECTIVES.make("naive", world, options={"link": "thread"})
        x = torch.randn(700, generator=torch.Generator().manual_seed(world.rank))
        residual, total = torch.zeros(700), torch.zeros(700)
        for _ in range(200):
            total += averaged(collective, x.clone(), message, residual)
        return x, total / 200

    found = in_threads(3, rank)
    exact = torch.stack([x for x, _ in found]).mean(0)
    for _, mean in found:
        assert torch.equal(mean, found[0][1])
        torch.testing.assert_close(mean, exact, rtol=0, atol=error)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("local_sgd", {"sync_every": 0}),
        ("local_sgd", {"sync_every": "epoch", "adaptive": True}),
        ("local_sgd", {"buffers": "all"}),
        ("diloco", {"fragments": 0}),
        ("diloco", {"sync_every": "epoch", "fragments": 2}),
        ("diloco", {"outer_momentum": 1.0}),
        ("diloco", {"message": "int4"}),
        ("hogwild", {"bound": -1}),
        ("parameter_server", {"servers": 2}),
        ("parameter_server", {"mode": "sync", "turns": "claimed"}),
        ("parameter_server", {"backup": 1}),
        ("parameter_server", {"survive": True}),
        ("parameter_server", {"survive": True, "mode": "async", "turns": "dealt"}),
    ],
)
def test_impossible_options_are_one_line(zygote, name, options):
    for said in zygote.run("cases.asynchronous:refused", 2, name=name, options=options):
        assert said.startswith(name)
        assert "\n" not in said
