"""Two models with an optimizer each, inputs by keyword, a part that is computed twice to save memory."""

import torch
import torch.distributed as dist
from pieces import batches, net
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Twice(nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.net = net(seed=seed)

    def forward(self, *, inputs):
        return checkpoint(self.net, inputs, use_reentrant=False)


dist.init_process_group("gloo")
models = [DistributedDataParallel(Twice(seed)) for seed in (0, 1)]
optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
for epoch in range(3):
    for x, y in batches(dist.get_rank(), dist.get_world_size(), epoch):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs=x), y).backward()
            optimizer.step()
dist.destroy_process_group()
