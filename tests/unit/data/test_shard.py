"""Every sample exactly once, the same order for every number of seats, and continuing is going on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.shard import Order, deal, evaluation_slice, seat_slice, steps_per_epoch
from paceline.errors import ConfigError

sizes = st.integers(0, 300)
batches = st.integers(1, 80)
seats = st.integers(1, 12)
seeds = st.integers(0, 2**31 - 1)


@given(sizes, batches, seats, seeds, st.integers(0, 5))
def test_every_sample_exactly_once_over_all_steps_and_seats(size, batch, count, seed, epoch):
    steps = list(Order(size, seed).steps(epoch, batch))
    dealt = [deal(step, seat, count) for step in steps for seat in range(count)]
    assert sorted(np.concatenate([*dealt, []])) == list(range(size))
    assert len(steps) == steps_per_epoch(size, batch)
    assert all(len(step) == batch for step in steps[:-1])


@given(sizes, seats)
def test_pieces_are_contiguous_and_the_first_ones_are_the_larger(size, count):
    pieces = [range(size)[seat_slice(size, seat, count)] for seat in range(count)]
    assert [i for piece in pieces for i in piece] == list(range(size))
    lengths = [len(piece) for piece in pieces]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)
    assert pieces == [range(size)[evaluation_slice(size, seat, count)] for seat in range(count)]


@given(sizes, batches, seats, seeds)
def test_seats_put_together_are_the_step_in_its_order(size, batch, count, seed):
    for step in Order(size, seed).steps(0, batch):
        assert np.array_equal(np.concatenate([deal(step, seat, count) for seat in range(count)]), step)


@given(sizes, batches, seeds, st.integers(0, 10))
def test_resuming_is_going_on(size, batch, seed, done):
    steps = list(Order(size, seed).steps(3, batch))
    position = min(done * batch, size)
    resumed = list(Order(size, seed).steps(3, batch, position))
    assert len(resumed) == len(steps[done:])
    assert all(np.array_equal(a, b) for a, b in zip(resumed, steps[done:], strict=True))


@given(sizes, batches, batches, seeds, st.data())
def test_resuming_with_another_batch_still_sees_the_rest_exactly_once(size, batch, other, seed, data):
    position = data.draw(st.integers(0, size))
    rest = list(Order(size, seed).steps(1, other, position))
    assert np.array_equal(np.concatenate([*rest, []]), Order(size, seed).epoch(1)[position:])


def test_epochs_and_seeds_differ_and_repeat():
    order = Order(1000, 7)
    assert np.array_equal(order.epoch(2), Order(1000, 7).epoch(2))
    assert not np.array_equal(order.epoch(2), order.epoch(3))
    assert not np.array_equal(order.epoch(2), Order(1000, 8).epoch(2))


def test_the_order_is_the_one_that_runs_were_made_with():
    assert Order(10, 0).epoch(0).tolist() == np.random.default_rng((0, 0)).permutation(10).tolist()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Order(10, -1), "negative"),
        (lambda: list(Order(10, 0).steps(0, 0)), "at least 1"),
        (lambda: list(Order(10, 0).steps(0, 4, 11)), "position must be 0 to 10"),
        (lambda: seat_slice(10, 2, 2), "seat must be 0 to 1"),
    ],
)
def test_impossible_requests_are_one_line(call, says):
    with pytest.raises(ConfigError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


@given(size=st.integers(0, 300), parts=st.integers(2, 6), share=st.integers(1, 20), epoch=st.integers(0, 3))
def test_with_fixed_parts_every_seat_keeps_its_own_samples(size, parts, share, epoch):
    order = Order(size, 7, parts=parts)
    seen = [[] for _ in range(parts)]
    for indices in order.steps(epoch, share * parts):
        for seat in range(parts):
            seen[seat] += deal(indices, seat, parts).tolist()
    for seat in range(parts):
        cut = seat_slice(size, seat, parts)
        assert sorted(seen[seat]) == list(range(cut.start, cut.stop))


def test_fixed_parts_must_divide_the_step():
    with pytest.raises(ConfigError, match="do not divide"):
        Order(10, 0, parts=3).epoch(0, 4)
