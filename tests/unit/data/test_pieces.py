"""Every sample once, as many passes on every seat, weights that make the mean right: for any sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.data import Order
from paceline.data.pieces import pieces
from paceline.errors import ConfigError


@given(
    size=st.integers(0, 60), seats=st.integers(1, 9), batch=st.integers(1, 7), accumulate=st.integers(1, 4),
    epoch=st.integers(0, 2),
)  # fmt: skip
def test_pieces(size, seats, batch, accumulate, epoch):
    order = Order(size, 3)
    dealt = [list(pieces(order, epoch, batch, (index, seats), accumulate)) for index in range(seats)]
    own = np.concatenate([piece.indices[: piece.own] for seat in dealt for piece in seat] or [[]])
    assert sorted(own) == list(range(size))
    assert len({len(seat) for seat in dealt}) == 1
    values = np.random.default_rng(1).normal(size=size)
    gradient, updates = 0.0, iter(order.steps(epoch, batch * seats * accumulate))
    for passes in zip(*dealt, strict=True):
        assert len({piece.last for piece in passes}) == 1
        for piece in passes:
            assert 1 <= len(piece.indices) <= max(batch, 2) and piece.own in (0, len(piece.indices))
            assert (piece.weight > 0) == (piece.own > 0)
            gradient += piece.weight * values[piece.indices].mean() / seats
        if passes[0].last:
            assert gradient == pytest.approx(values[next(updates)].mean())
            gradient = 0.0
    assert gradient == 0.0 and next(updates, None) is None


def test_full_steps_weigh_nothing_extra():
    """So a loop of one process computes the very same bits."""
    assert [piece.weight for piece in pieces(Order(12, 0), 0, 4)] == [1.0] * 3


@pytest.mark.parametrize(("batch", "accumulate"), [(0, 1), (1, 0)])
def test_sizes_below_one_are_refused(batch, accumulate):
    with pytest.raises(ConfigError, match="at least 1"):
        list(pieces(Order(4, 0), 0, batch, accumulate=accumulate))
