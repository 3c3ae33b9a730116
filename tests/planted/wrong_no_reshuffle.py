"""The sampler is never told which epoch it is."""

import torch
import torch.distributed as dist
from pieces import dataset, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(dataset(), batch_size=8, sampler=DistributedSampler(dataset()))
for _ in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
