"""One model in memory that all ranks share; each updates it when it likes, and nobody waits for anybody.

python examples/03_hogwild.py                                    alone: plain SGD
paceline run examples/03_hogwild.py --ranks 2                    two ranks of this machine
paceline run examples/03_hogwild.py --ranks 4 --data mnist       four; the momentum is lowered by a rule
"""

import argparse

import torch
from torch.nn.functional import cross_entropy

import paceline as pl
from paceline.models.mnist_cnn_small import MnistCnnSmall

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="digits", choices=["digits", "mnist"])
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.02)
arguments = parser.parse_args()

with pl.join(threads=1) as world:
    data = pl.data_set(arguments.data)
    torch.manual_seed(1)
    model = MnistCnnSmall(data.shape, data.classes)
    optimizer = torch.optim.SGD(model.parameters(), arguments.lr, momentum=0.9)
    training = world.wrap(model, optimizer, strategy="hogwild")
    for epoch in range(arguments.epochs):
        for batch in world.shard(data.train, arguments.batch, epoch=epoch):
            images, labels = batch
            training.backward(cross_entropy(training(images), labels), batch)
            training.step()  # a vector operation on the shared copy; no message, no lock
        test = training.evaluate(data.test)  # waits until nobody writes
        world.print(f"epoch {epoch}: test accuracy {test['accuracy']:.2%}")
    counted = training.strategy.account()
    old = {int(age): n for age, n in counted["staleness"].items()}
    mean = sum(age * n for age, n in old.items()) / max(1, sum(old.values()))
    world.print_all(f"rank {world.rank}: {sum(old.values())} updates, on average {mean:.2f} updates old")
    world.print(f"{counted['updates']} updates by {world.size} rank(s)")
