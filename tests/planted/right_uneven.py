"""A rank that runs out early, and the others do not wait for it (Join)."""

import itertools

import torch
import torch.distributed as dist
from pieces import batches, net
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    with Join([model]):
        for x, y in itertools.islice(batches(rank, size, epoch), 6 - rank):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
dist.destroy_process_group()
