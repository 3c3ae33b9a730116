"""A PyTorch program as it is, on Paceline's collectives: one import, one name.

    torchrun --nproc_per_node 2 examples/02_stock_ddp_on_our_backend.py

Everything else is PyTorch's own: torchrun, DistributedDataParallel, the optimizer. Write "gloo" for
"paceline" and it runs as before.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import paceline.backend  # noqa: F401 - makes the names known


def main() -> None:
    dist.init_process_group("paceline")  # or "paceline_ring", "cpu:paceline_auto", …
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    weights = torch.randn(32, 1)  # what is to be learnt: the same on every rank
    generator = torch.Generator().manual_seed(dist.get_rank())  # each rank has samples of its own

    began = time.perf_counter()
    for _ in range(200):
        samples = torch.randn(16, 32, generator=generator)
        loss = nn.functional.mse_loss(model(samples), samples @ weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - began

    dist.all_reduce(loss.detach(), op=dist.ReduceOp.AVG)
    total = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).sum()
    totals = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(totals, total)
    if dist.get_rank() == 0:
        same = all(bool(each == totals[0]) for each in totals)
        print(f"{len(totals)} ranks, loss {loss:.3f}, {seconds * 5:.2f} ms a step, replicas equal: {same}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
