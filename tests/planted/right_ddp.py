"""DistributedDataParallel, a sampler told of every epoch, an exact evaluation, synchronised by the wrapper."""

import torch
import torch.distributed as dist
from pieces import dataset, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(net(norm=True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
train, test = dataset(96), dataset(101, seed=1)
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=8, sampler=sampler)
mine = DataLoader(Subset(test, range(rank, len(test), size)), batch_size=16)
for epoch in range(3):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    model.eval()
    right = torch.zeros(1)
    with torch.no_grad():
        for x, y in mine:
            right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
dist.destroy_process_group()
