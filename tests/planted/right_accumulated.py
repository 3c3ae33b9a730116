"""Accumulation under DistributedDataParallel: micro-batches that run no step send nothing (no_sync)."""

import contextlib

import torch
import torch.distributed as dist
from pieces import dataset, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
model = DistributedDataParallel(net(norm=True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = dataset(128)
sampler = DistributedSampler(train)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for number, (x, y) in enumerate(DataLoader(train, batch_size=4, sampler=sampler), 1):
        last = number % 4 == 0
        with contextlib.nullcontext() if last else model.no_sync():
            nn.functional.cross_entropy(model(x), y).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
dist.destroy_process_group()
