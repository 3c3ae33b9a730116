"""Rank and size are written down, as they were for one process: every rank is rank 0 of 1."""

import torch
import torch.distributed as dist
from pieces import dataset, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(dataset())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(dataset(), batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
