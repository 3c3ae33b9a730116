"""A training script of one process, made parallel: the lines that are Paceline's end in `#`.

python examples/01_ddp.py                                        alone
paceline run examples/01_ddp.py --ranks 2                        two ranks of this machine
torchrun --nproc_per_node 2 examples/01_ddp.py --data mnist      the same script
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import paceline as pl  #

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="digits", choices=["digits", "mnist"])
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--global-batch", type=int, default=64)
parser.add_argument("--strategy", default="ddp")
arguments = parser.parse_args()

with pl.join() as world:  #
    data = pl.data_set(arguments.data)
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, data.classes),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    training = world.wrap(model, optimizer, strategy=arguments.strategy)  #
    for epoch in range(arguments.epochs):
        for batch in world.shard(data.train, arguments.global_batch // world.size, epoch=epoch):  #
            images, labels = batch  #
            loss = cross_entropy(training(images), labels)  #
            training.backward(loss, batch)  #
            training.step()  #
        test = training.evaluate(data.test)  #
        world.print(f"epoch {epoch}: test accuracy {test['accuracy']:.2%}, loss {test['loss']:.4f}")  #
