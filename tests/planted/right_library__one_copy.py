"""One copy of the parameters for all ranks: the optimizer holds slices of them."""

import torch
from pieces import dataset, net
from torch.nn.functional import cross_entropy

import paceline as pl

with pl.join() as world:
    model = net(seed=world.rank)
    training = world.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), strategy="one_copy")
    for epoch in range(3):
        for batch in world.shard(dataset(1000), batch=8, epoch=epoch):
            x, y = batch
            training.backward(cross_entropy(training(x), y), batch)
            training.step()
        training.evaluate(dataset(33, seed=1))
