"""What the planted scripts share: a small problem, its samples dealt by hand, gradients added up by hand."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset


def dataset(samples=96, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 12, generator=generator)
    return TensorDataset(x, (x[:, :3].sum(1) > 0).long())


def net(norm=False, seed=0):
    torch.manual_seed(seed)
    middle = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(12, 16), *middle, nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))


def batches(rank, size, epoch=0, samples=96, batch=8):
    """The shuffled samples of one rank, dealt by hand."""
    x, y = dataset(samples).tensors
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))[rank::size]
    for chosen in order.split(batch):
        yield x[chosen], y[chosen]


def add_up_gradients(model, divide_by=1):
    """One all-reduce of all gradients together."""
    parameters = list(model.parameters())
    flat = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(flat)
    for p, g in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.grad.copy_(g.view_as(p) / divide_by)
