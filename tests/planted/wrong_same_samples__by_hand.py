"""A loop by hand that deals the samples out as if it were rank 0, everywhere."""

import torch
import torch.distributed as dist
from pieces import batches, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in batches(0, dist.get_world_size(), epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
