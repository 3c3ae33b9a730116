"""A collective of your own, in one method: everybody gathers everything and adds it up.

paceline run examples/04_my_collective.py --ranks 3

`all_reduce_` is all that is required; broadcast, all-gather and the rest follow from it. Here another
collective's all_gather moves the bytes. Rows are added in rank order on every rank, so all get the same bits.
"""

import torch

import paceline as pl
from paceline.comm.collectives import Collective
from paceline.registry import COLLECTIVES


class GatherAndAdd(Collective):
    """p times the bytes of a ring, but one message."""

    def __init__(self, world):
        super().__init__(world)
        self._inner = COLLECTIVES.make("native", world)

    def all_reduce_(self, flat, operation="sum"):
        rows = self._inner.all_gather(flat)
        combined = {
            "sum": lambda: rows.sum(0),
            "avg": lambda: rows.mean(0),
            "min": lambda: rows.amin(0),
            "max": lambda: rows.amax(0),
            "product": lambda: rows.prod(0),
        }[operation]()
        return flat.copy_(combined)


with pl.join() as world:
    mine, ring = world.collective(GatherAndAdd), world.collective("ring")
    ours = mine.all_reduce_(torch.arange(5.0) + world.rank)
    theirs = ring.all_reduce_(torch.arange(5.0) + world.rank)
    world.print_all(
        f"rank {world.rank}: {ours.tolist()}, the ring says the same: {torch.equal(ours, theirs)}"
    )

    # A strategy takes it like any other.
    model = torch.nn.Linear(5, 1)
    training = world.wrap(model, torch.optim.SGD(model.parameters(), 0.1), collective=mine)
    training.backward(training(torch.ones(2, 5) * world.rank).square().mean())
    training.step()
    world.print_all(f"rank {world.rank}: weights {[round(w, 4) for w in model.weight.flatten().tolist()]}")
