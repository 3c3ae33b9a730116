"""The wrapper may not send buffers, nothing is evaluated, and what is left differs."""

import torch
import torch.distributed as dist
from pieces import batches, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(net(norm=True), broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in batches(dist.get_rank(), dist.get_world_size(), epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
