"""The wrapper averages, and the loss is divided by the number of ranks as well."""

import torch
import torch.distributed as dist
from pieces import batches, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in batches(dist.get_rank(), dist.get_world_size(), epoch):
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(x), y) / dist.get_world_size()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
dist.destroy_process_group()
