"""The model is wrapped, and the module inside the wrapper is called: its hooks never run."""

import torch
import torch.distributed as dist
from pieces import batches, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = net()
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in batches(dist.get_rank(), dist.get_world_size(), epoch):
        optimizer.zero_grad()
        with wrapped.no_sync():
            nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
