"""What PyTorch builds on a process group, over ours and over gloo: the same program, the same numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import paceline.backend  # noqa: F401 - registers the names
from paceline.comm.world import World


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


def data(rank: int) -> torch.Tensor:
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(rank))


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: int = 3
) -> list[torch.Tensor]:
    for _ in range(steps):
        optimizer.zero_grad()
        model(data(rank)).pow(2).mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def ddp(group, rank):
    model = DistributedDataParallel(net(), process_group=group, bucket_cap_mb=0.001)
    return train(model, sgd(model), rank)


def no_sync(group, rank):
    model = DistributedDataParallel(net(), process_group=group)
    with model.no_sync():
        model(data(rank + 7)).sum().backward()
    return train(model, sgd(model), rank)


def join(group, rank):
    model = DistributedDataParallel(net(), process_group=group)
    with model.join():
        return train(model, sgd(model), rank, steps=2 + rank)


def fp16_hook(group, rank):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DistributedDataParallel(net(), process_group=group, bucket_cap_mb=0.001)
    model.register_comm_hook(group, default_hooks.fp16_compress_hook)
    return train(model, sgd(model), rank)


def power_sgd(group, rank):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = DistributedDataParallel(net(), process_group=group)
    state = powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(model, sgd(model), rank, steps=5)


def zero(group, rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(net(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=0.1)
    return train(model, optimizer, rank)


def buffers(group, rank):
    whole = nn.Sequential(nn.BatchNorm1d(16), net())
    model = DistributedDataParallel(whole, process_group=group)
    train(model, sgd(model), rank)
    model.eval()(data(rank))
    return [buffer.float() for buffer in whole.buffers()] if rank == 0 else []


def _mesh(group):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh.from_group(group, "cpu")


def fsdp2_and_dcp(group, rank):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=_mesh(group))
    fully_shard(model, mesh=_mesh(group))
    train(model, torch.optim.Adam(model.parameters(), lr=0.1), rank)
    state = get_model_state_dict(model)
    folder = [str(Path(tempfile.mkdtemp()))]
    dist.broadcast_object_list(folder, src=0, group=group)
    dcp.save({"model": state}, checkpoint_id=folder[0], process_group=group)
    before = [each.full_tensor().clone() for each in state.values()]
    for each in state.values():
        each.zero_()
    dcp.load({"model": state}, checkpoint_id=folder[0], process_group=group)
    after = [each.full_tensor() for each in state.values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return after


def dtensor(group, rank):
    from torch.distributed.tensor import Shard, distribute_tensor

    a = distribute_tensor(torch.arange(16.0).view(4, 4), _mesh(group), [Shard(0)])
    b = distribute_tensor(torch.eye(4) * 2, _mesh(group), [Shard(1)])
    return [
        (a @ b).full_tensor(),
        a.redistribute(_mesh(group), [Shard(1)]).full_tensor(),
        a.sum().full_tensor(),
    ]


def functional(group, rank):
    import torch.distributed._functional_collectives as fc

    x = data(rank)
    found = [fc.all_reduce(x, "sum", group), fc.all_gather_tensor(x, 0, group)]
    found += [fc.reduce_scatter_tensor(x, "avg" if group.name() == "paceline" else "sum", 0, group)]
    if group.name() == "paceline":
        found[-1] = found[-1] * dist.get_world_size(group)
    found += [fc.broadcast(x, 1, group), fc.all_to_all_single(x, None, None, group)]
    found += fc.all_reduce_coalesced([x, x * 2], "max", group)
    return [each + 0 for each in found]


def differentiable(group, rank):
    import torch.distributed.nn.functional as functional

    x = data(rank).requires_grad_()
    functional.all_reduce(x * 2, group=group).sum().backward()
    return [x.grad]


def compiled(group, rank):
    import torch.distributed._functional_collectives as fc

    def program(x):
        return fc.all_reduce(x * 2, "sum", group) + fc.all_gather_tensor(x, 0, group)[:4]

    model = DistributedDataParallel(net(), process_group=group)
    trained = train(torch.compile(model, backend="aot_eager"), sgd(model), rank)
    return [torch.compile(program, backend="aot_eager", fullgraph=True)(data(rank)), *trained]


def run(world: World, program: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The same program over both: pairs of tensors that have to agree."""
    found = [globals()[program](dist.new_group(backend=name), world.rank) for name in ("paceline", "gloo")]
    assert len(found[0]) == len(found[1])
    return list(zip(*found, strict=True))
