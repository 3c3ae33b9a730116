"""The batches of one seat for a loop of your own: which samples, and how much their mean loss weighs.

    Order.steps(batch × seats × accumulate)      one update each; the last may be short
        │ deal: one seat's part of a step
        ▼
    pieces of at most `batch` samples            as many on every seat, so that nobody waits for ever

The mean over the seats of Σ weight · (mean loss of a piece) is the mean loss of the whole step, however short
or uneven it is. A seat for which nothing is left is lent two samples, at weight 0 and with `own` 0: it runs
the same calls as the others and adds nothing. Pure arithmetic, no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.data.shard import Indices, Order, deal, seat_slice
from paceline.errors import ConfigError

_LENT = 2  # batch norm refuses a single sample


@dataclass(frozen=True)
class Piece:
    """One backward pass of one seat: `own` samples are its own; `last`: it completes an update."""

    indices: Indices
    own: int
    weight: float
    last: bool


def pieces(
    order: Order, epoch: int, batch: int, seat: tuple[int, int] = (0, 1), accumulate: int = 1
) -> Iterator[Piece]:
    """One epoch of a seat; every sample is exactly one seat's exactly once."""
    if batch < 1 or accumulate < 1:
        raise ConfigError(f"batch and accumulate must be at least 1, got {batch} and {accumulate}")
    index, seats = seat
    for step in order.steps(epoch, batch * seats * accumulate):
        mine = deal(step, index, seats)
        largest = -(-len(step) // seats)
        parts = -(-largest // batch)
        for number in range(parts):
            some = mine[seat_slice(len(mine), number, parts)]
            yield Piece(
                some if len(some) else step[:_LENT],
                len(some),
                len(some) * seats / len(step),
                number == parts - 1,
            )
