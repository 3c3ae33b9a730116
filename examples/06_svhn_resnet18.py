"""ResNet-18 on SVHN with gradient accumulation: the batch of an update without the memory of one.

paceline run examples/06_svhn_resnet18.py --ranks 2 --data svhn --allow-unverified --accumulate 2
paceline run examples/06_svhn_resnet18.py --ranks 2 --data synthetic --batch 4 --steps 2

Passes that complete no update send nothing. Cosine learning rate by torch's own scheduler.
"""

import argparse
import resource

import torch
from torch.nn.functional import cross_entropy

import paceline as pl
from paceline.models.resnet18 import Resnet18

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="svhn", choices=["svhn", "synthetic"])
parser.add_argument("--allow-unverified", action="store_true")
parser.add_argument("--batch", type=int, default=16, help="samples of a rank in one pass")
parser.add_argument("--accumulate", type=int, default=2, help="passes of an update")
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--steps", type=int, help="updates of an epoch at most, to try it out")
arguments = parser.parse_args()

with pl.join(deadline=600) as world:
    options = {"shape": "3x32x32", "train": 64, "test": 16} if arguments.data == "synthetic" else {}
    data = pl.data_set(arguments.data, allow_unverified=arguments.allow_unverified, **options)
    torch.manual_seed(1)
    model = Resnet18(data.shape, data.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)
    training = world.wrap(model, optimizer, strategy="ddp")
    for epoch in range(arguments.epochs):
        updates, lost, seen = 0, 0.0, 0
        for batch in world.shard(data.train, arguments.batch, epoch=epoch, accumulate=arguments.accumulate):
            images, labels = batch
            with training.accumulating(batch):
                loss = cross_entropy(training(images), labels)
                training.backward(loss, batch)
            lost, seen = lost + batch.own * loss.item(), seen + batch.own
            if batch.last:
                training.step()
                updates += 1
                if updates == arguments.steps:
                    break
        schedule.step()
        lost, seen = world.total(lost, seen)
        test = training.evaluate(data.test, batch=64)
        world.print(
            f"epoch {epoch}: {updates} updates, training loss {lost / seen:.4f}, "
            f"test accuracy {test['accuracy']:.2%} of {test.count}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    world.print_all(f"rank {world.rank}: peak memory {peak:,.0f} MiB")
