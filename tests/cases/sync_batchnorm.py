"""What a rank does in the tests of SyncBatchNorm: its share of a batch, beside the whole batch in one BatchNorm."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from cases.strategies import batch
from paceline.comm.measured import Measured
from paceline.comm.world import World
from paceline.data.shard import seat_slice
from paceline.metrics.clock import Clock, Meter
from paceline.nn import SyncBatchNorm, _kernels
from paceline.registry import COLLECTIVES, STRATEGIES
from paceline.train.build import over_all_ranks
from paceline.train.step import Step

NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bf16": torch.bfloat16, "half": torch.float16}


class Pass:
    """One layer, one batch dealt to the ranks, some steps; what differs from BatchNorm on the whole batch."""

    def __init__(self, world: World, group: Any, meter: Meter, case: dict[str, Any]) -> None:
        self.world, self.group, self.meter = world, group, meter
        self.shape = case["shape"]
        self.shares = case.get("shares") or self._even()
        self.layer = case.get("layer", {})
        self.dtype = DTYPES[case.get("dtype", "float32")]
        self.mean = case.get("mean", 0.0)
        self.channels_last = case.get("channels_last", False)
        self.in_c = case.get("in_c", True)

    def _even(self) -> list[int]:
        cuts = [seat_slice(self.shape[0], rank, self.world.size) for rank in range(self.world.size)]
        return [cut.stop - cut.start for cut in cuts]

    def run(self) -> dict[str, Any]:
        channels = self.shape[1]
        torch.manual_seed(0)
        exact = torch.float64 if self.mean or self.dtype is torch.float64 else torch.float32
        whole = NORMS[len(self.shape)](channels, **self.layer, dtype=exact)
        ours = SyncBatchNorm(channels, **self.layer, process_group=self.group)
        if self.dtype is torch.float64:
            ours.double()
        if whole.affine:
            with torch.no_grad():
                whole.weight.uniform_(0.5, 2).copy_(whole.weight.float())
                whole.bias.uniform_(-1, 1).copy_(whole.bias.float())
        ours.load_state_dict(whole.state_dict())
        core, _kernels._core = _kernels._core, _kernels._core if self.in_c else None
        steps = [self._step(whole, ours, exact) for _ in range(2)]
        _kernels._core = core
        state = {name: value.clone() for name, value in ours.state_dict().items()}
        apart = {name: max(step[name] for step in steps) for name in steps[0]}
        pairs = zip(ours.buffers(), whole.buffers(), strict=True)
        apart["running"] = max([0.0, *(far(a, b) for a, b in pairs)])
        return {"apart": apart, "state": state, "finite": all(v.isfinite().all() for v in state.values())}

    def _step(self, whole: nn.Module, ours: nn.Module, exact: torch.dtype) -> dict[str, float]:
        x = (torch.randn(self.shape) + self.mean).to(self.dtype)
        start = sum(self.shares[: self.world.rank])
        mine = slice(start, start + self.shares[self.world.rank])
        a = x.to(exact).clone().requires_grad_()
        b = x[mine].contiguous(memory_format=self._format()).detach().clone().requires_grad_()
        half = torch.zeros(self.shape[0], *[1] * (len(self.shape) - 1), dtype=exact)
        half[: self.shape[0] // 2] = 1
        want = whole(a)
        whole.zero_grad()
        (want * half).sum().backward()
        before = self.meter.calls
        got = ours(b)
        forward = self.meter.calls - before
        ours.zero_grad()
        (got * half[mine].to(got.dtype)).sum().backward()
        backward = self.meter.calls - before - forward
        found = {"y": far(got, want[mine]), "dx": far(b.grad, a.grad[mine]), "dw": 0.0}
        for mine_, all_ in zip(ours.parameters(), whole.parameters(), strict=True):
            total = mine_.grad.double()
            dist.all_reduce(total)
            found["dw"] = max(found["dw"], far(total, all_.grad) / max(1.0, float(all_.grad.abs().max())))
        assert got.dtype == self.dtype and b.grad.dtype == self.dtype
        return found | {"forward": forward, "backward": backward}

    def _format(self) -> torch.memory_format:
        last = {4: torch.channels_last, 5: torch.channels_last_3d}
        return last[len(self.shape)] if self.channels_last else torch.contiguous_format


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest distance of two elements."""
    return float((a.detach().double() - b.detach().double()).abs().max()) if a.numel() else 0.0


def passes(world: World, over: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All cases in one world, over a collective by name or over torch's process group."""
    meter = Meter()
    groups = {"default group": None, "process group": world.group}
    group = groups[over] if over in groups else Measured(COLLECTIVES.make(over, world), meter)
    found = [Pass(world, group, meter, case).run() for case in cases]
    dist.barrier()
    return found


def model(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 7, bias=False),
        nn.BatchNorm1d(7, affine=False), nn.Tanh(), nn.Linear(7, 3),
    )  # fmt: skip


def train(
    world: World, name: str, over: str, counts: list[int], micro_batches: int = 1, options: dict | None = None
) -> dict[str, Any]:
    """Steps of a model with two such layers, under a strategy."""
    meter = Meter()
    collective = Measured(COLLECTIVES.make(over, world), meter)
    strategy = STRATEGIES.make(name, world, collective, meter, options=options)
    net = over_all_ranks(model(1 + world.rank), strategy)
    own = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    step = Step(strategy.attach(net, own), strategy, Clock(), meter, micro_batches=micro_batches)
    messages = []
    for number, count in enumerate(counts):
        images, labels = batch(number, count)
        mine = seat_slice(count, *strategy.seat)
        before = meter.calls
        step(images[mine], labels[mine], count)
        messages.append(meter.calls - before)
    strategy.synchronize()
    strategy.close()
    net.eval()
    before = meter.calls
    outputs = net(batch(99, 5)[0]).detach()
    state = {key: value.detach().clone() for key, value in net.state_dict().items()}
    return {"state": state, "messages": messages, "evaluation": meter.calls - before, "outputs": outputs}


def alone(counts: list[int], ranks: int, micro_batches: int = 1) -> dict[str, torch.Tensor]:
    """One process; a micro-batch of its has the samples of all ranks' micro-batches of that number."""
    net = model()
    own = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for number, count in enumerate(counts):
        images, labels = batch(number, count)
        dealt = [
            torch.arange(count)[seat_slice(count, r, ranks)].tensor_split(micro_batches) for r in range(ranks)
        ]
        own.zero_grad()
        for pieces in zip(*dealt, strict=True):
            rows = torch.tensor(list(itertools.chain(*pieces)), dtype=torch.long)
            loss = nn.functional.cross_entropy(net(images[rows]), labels[rows], reduction="sum")
            (loss / count).backward()
        own.step()
    return {key: value.detach() for key, value in net.state_dict().items()}


def refused(world: World, case: str) -> str:
    """What is said, on every rank."""
    layer = SyncBatchNorm(3, process_group=COLLECTIVES.make("native", world))
    x = torch.randn(int(world.rank == 0 or case != "one"), 3, requires_grad=True)
    try:
        if case == "one":
            layer(x)
        elif case == "twice":
            torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "taken"


def nothing_at_all(world: World) -> tuple[list[int], bool, list[float]]:
    """No rank has a sample: an empty output, and running statistics as they were."""
    layer = SyncBatchNorm(3, process_group=COLLECTIVES.make("native", world))
    x = torch.empty(0, 3, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    finite = all(bool(p.grad.isfinite().all()) for p in layer.parameters())
    return list(x.grad.shape), finite, layer.running_var.tolist()
