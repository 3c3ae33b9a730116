"""CIFAR with batch norm over all ranks: one message in forward, one in backward, on CPUs too.

paceline run examples/07_cifar_sync_batchnorm.py --ranks 2 --data cifar10
paceline run examples/07_cifar_sync_batchnorm.py --ranks 2 --data synthetic --steps 3 --strategy one_copy

Plain batch norm would normalise each rank's samples alone: with p ranks by a p-th of the statistics.
"""

import argparse

import torch
from torch.nn.functional import cross_entropy

import paceline as pl
from paceline.models.cifar_cnn import CifarCnn
from paceline.nn import convert_sync_batchnorm

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="cifar10", choices=["cifar10", "cifar100", "synthetic"])
parser.add_argument("--batch", type=int, default=64, help="samples of a rank")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--steps", type=int, help="updates of an epoch at most, to try it out")
parser.add_argument("--strategy", default="ddp")
arguments = parser.parse_args()

with pl.join() as world:
    options = {"shape": "3x32x32", "train": 256, "test": 64} if arguments.data == "synthetic" else {}
    data = pl.data_set(arguments.data, **options)
    torch.manual_seed(1)
    collective = world.collective()
    model = convert_sync_batchnorm(CifarCnn(data.shape, data.classes), collective)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    training = world.wrap(model, optimizer, strategy=arguments.strategy, collective=collective)
    for epoch in range(arguments.epochs):
        for step, batch in enumerate(world.shard(data.train, arguments.batch, epoch=epoch)):
            if step == arguments.steps:
                break
            images, labels = batch
            training.backward(cross_entropy(training(images), labels), batch)
            training.step()
        test = training.evaluate(data.test)
        world.print(f"epoch {epoch}: test accuracy {test['accuracy']:.2%}, loss {test['loss']:.4f}")
