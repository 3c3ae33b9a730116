"""Paceline's own ten lines, replicas that begin apart, BatchNorm, an exact evaluation."""

import torch
from pieces import dataset, net
from torch.nn.functional import cross_entropy

import paceline as pl

with pl.join() as world:
    model = net(norm=True, seed=world.rank)
    training = world.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), collective="native")
    for epoch in range(3):
        for batch in world.shard(dataset(1000), batch=8, epoch=epoch):
            x, y = batch
            training.backward(cross_entropy(training(x), y), batch)
            training.step()
        training.evaluate(dataset(33, seed=1))
