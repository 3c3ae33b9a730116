"""Ranks that do not wait: hogwild's shared copy, parameter servers' modes, and what is counted of both."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.strategies._momentum import scaled_momentum
from paceline.strategies._pieces import Pieces
from paceline.strategies._server_messages import END, PUSH, Message

STEPS = 12
STILL = [0.0] * 4


def run(zygote, ranks, name, pause=STILL, **options):
    return zygote.run(
        "cases.asynchronous:steps", ranks, name=name, options=options, count=STEPS, pause=pause[:ranks]
    )


@pytest.mark.parametrize("lock", [False, True])
def test_an_update_of_one_is_seen_by_all(zygote, lock):
    for change in zygote.run("cases.asynchronous:seen", 3, lock=lock):
        assert change == pytest.approx([0.5] * 3)


def test_hogwild_counts_every_update_and_its_staleness(zygote):
    ranks = run(zygote, 3, "hogwild")
    for rank in ranks:
        assert sum(rank["account"]["staleness"].values()) == STEPS
        assert rank["account"]["updates"] == 3 * STEPS
        assert torch.equal(rank["flat"], ranks[0]["flat"])
        assert rank["momentum"] == pytest.approx(0.7)


def test_alone_nothing_is_stale(zygote):
    (rank,) = run(zygote, 1, "hogwild")
    assert rank["account"] == {"staleness": {"0": STEPS}, "overlapping_updates": 0, "updates": STEPS}


def test_under_a_lock_no_two_updates_overlap(zygote):
    for rank in run(zygote, 3, "hogwild", lock=True):
        assert rank["account"]["overlapping_updates"] == 0


def test_a_bound_holds_the_fast_back(zygote):
    fast, slow = run(zygote, 2, "hogwild", pause=[0.0, 0.02], bound=1)
    assert max(map(int, slow["account"]["staleness"])) <= 2  # one ahead, and one under way
    assert sum(fast["account"]["staleness"].values()) == STEPS


@given(st.floats(0, 0.999), st.integers(1, 64))
def test_momentum_is_lowered_and_never_negative(momentum, ranks):
    left = scaled_momentum(momentum, ranks)
    assert 0 <= left <= momentum + 1e-12
    if left > 0:  # with what asynchrony brings along it is what was asked for
        assert 1 - (1 - left) / ranks == pytest.approx(momentum)


def test_a_round_of_one_push_and_one_pull(zygote):
    ranks = run(zygote, 3, "parameter_server")
    parameters = len(ranks[0]["flat"])
    for trainer in ranks[:2]:  # and a push at the end, to say that the epoch is over
        stamps = (STEPS + 1) * 12
        assert trainer["bytes"] == (STEPS + 1) * 4 * parameters + stamps
        assert trainer["taken"] == [(number, ranks.index(trainer), 2) for number in range(STEPS)]
    assert ranks[2]["account"]["staleness"] == {"0": 2 * STEPS}
    assert ranks[2]["account"]["updates"] == STEPS


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_parts_on_several_servers_are_the_same_training(zygote, servers):
    one = run(zygote, 3, "parameter_server")
    more = run(zygote, 2 + servers, "parameter_server", pause=[0.0] * 5, servers=servers)
    for rank in more:
        torch.testing.assert_close(rank["flat"], one[0]["flat"], rtol=0, atol=0)


def test_a_synchronous_server_clips_the_mean_as_ddp_does(zygote):
    order = {
        "function": "cases.asynchronous:steps",
        "options": {},
        "count": STEPS,
        "pause": STILL,
        "clip": 0.05,
    }
    (ours, *_), (ddps, *_) = (
        zygote.run(**order, ranks=ranks, name=name) for ranks, name in ((3, "parameter_server"), (2, "ddp"))
    )
    torch.testing.assert_close(ours["flat"], ddps["flat"], rtol=1e-5, atol=1e-7)


def test_pieces_of_a_lost_trainer_are_dealt_again_first():
    pieces = Pieces()
    pieces.begin([0, 1, 3])
    assert [pieces.take(0), pieces.take(3)] == [3, 4]
    pieces.lose(1)  # with its first piece under way
    pieces.lose(1)
    assert pieces.returned
    assert [pieces.take(0), pieces.take(0)] == [1, 5]
    pieces.done(3)
    pieces.lose(3)  # it had nothing under way
    assert (pieces.returned, pieces.dealt_again) == (False, 1)


def test_asynchronous_trainers_take_pieces_as_they_are_ready(zygote):
    fast, slow, server = run(zygote, 3, "parameter_server", pause=[0.0, 0.03, 0.0], mode="async")
    assert len(fast["taken"]) > len(slow["taken"])
    assert sorted(fast["taken"] + slow["taken"]) == [(n, s, 2) for n in range(STEPS) for s in range(2)]
    assert server["account"]["updates"] == 2 * STEPS
    assert sum(server["account"]["staleness"].values()) == 2 * STEPS


def test_a_bound_of_staleness_holds_the_fast_back(zygote):
    options = {"mode": "ssp", "staleness": 1, "turns": "dealt"}
    fast, slow, server = run(zygote, 3, "parameter_server", pause=[0.0, 0.02, 0.0], **options)
    assert len(fast["taken"]) == len(slow["taken"]) == STEPS
    assert max(map(int, server["account"]["staleness"])) <= 3
    assert server["account"]["waited_for"][1] > server["account"]["waited_for"][0]


def test_the_slowest_gradients_of_a_round_are_dropped_by_choice(zygote):
    *_, server = run(zygote, 4, "parameter_server", pause=[0.0, 0.0, 0.03, 0.0], backup=1)
    assert server["account"]["dropped_gradients"] > 0
    assert server["account"]["updates"] >= STEPS


@given(st.integers(0, 2**31 - 1), st.lists(st.floats(0, 10, width=32), min_size=1, max_size=4))
def test_a_stamp_says_what_was_written(version, rates):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        message = Message(5, len(rates), dtype)
        message.values.fill_(2)
        message.stamp(END, version, rates)
        assert (message.kind, message.version, message.rates) == (END, version, rates)
        assert message.stamp(PUSH, 0).numel() == message.flat.numel()
        assert (message.values == 2).all()
