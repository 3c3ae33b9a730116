"""A strategy of your own, in one method: every rank steps alone, every k-th step the replicas are averaged.

paceline run examples/05_my_strategy.py --ranks 2 --every 4

`step` is all that is required. Keyword-only parameters of the constructor are its options. One message of all
parameters every k steps instead of one of all gradients in every step; the accuracy pays or it does not.
"""

import argparse

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import paceline as pl
from paceline.models.mlp import Mlp
from paceline.strategies import Strategy


class AverageNowAndThen(Strategy):
    lockstep = False  # between two averages the replicas differ

    def __init__(self, world, collective, meter, *, every):
        super().__init__(world, collective, meter)
        self._every = every
        self._steps = 0

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._steps += 1
        if self._steps % self._every == 0:
            self.synchronize()

    def synchronize(self):
        flat = parameters_to_vector(self.model.parameters()).detach()
        vector_to_parameters(self.collective.all_reduce_(flat, "avg"), self.model.parameters())
        super().synchronize()  # the buffers


parser = argparse.ArgumentParser()
parser.add_argument("--every", type=int, default=4)
parser.add_argument("--epochs", type=int, default=3)
arguments = parser.parse_args()

with pl.join() as world:
    data = pl.data_set("digits")
    torch.manual_seed(1)
    model = Mlp(data.shape, data.classes, hidden=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    training = world.wrap(model, optimizer, strategy=AverageNowAndThen, every=arguments.every)
    for epoch in range(arguments.epochs):
        for batch in world.shard(data.train, 32, epoch=epoch):
            images, labels = batch
            training.backward(cross_entropy(training(images), labels), batch)
            training.step()
        test = training.evaluate(data.test)  # synchronizes first
        world.print(f"epoch {epoch}: test accuracy {test['accuracy']:.2%}, {training.meter.calls} messages")
