"""A torch.distributed backend over any collective: stock DDP, FSDP2, DTensor … run on it unchanged.

    dist.all_reduce, DDP's reducer, functional collectives
        │ all_reduce broadcast reduce all_gather reduce_scatter barrier, of CPU tensors
        ▼
    Group (this file) ──► Engine (_backend_engine) ──► Collective (_backend_moves)
        │ everything else: send recv all_to_all gather scatter, sparse tensors, bit-wise reductions
        ▼
    gloo, registered beneath, reached in C++ without this file

The only file that knows c10d's process-group class: its methods are torch's, old names and new.
A process group in Python replaces torch's whole group, so `cpu:paceline,cuda:nccl` is one group of ours: CUDA
tensors get an error that names the way out. Cost: 5 to 10 µs a call above the collective's own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceOptions,
    ReduceScatterOptions,
)

from paceline.comm import _backend_moves as moves
from paceline.comm._backend_engine import Engine
from paceline.comm._backend_gate import Gate
from paceline.comm._backend_work import CollectiveWork, as_torch, skip_in_compiled
from paceline.comm._backend_world import CPU, collective_of, gloo_of, plain_group, world_of
from paceline.comm.calls import DTYPES
from paceline.comm.collectives import Collective, Operation
from paceline.comm.world import World
from paceline.errors import PacelineError

_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled
_OPERATIONS: dict[Any, Operation] = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "product",
}
_DTYPES = frozenset(DTYPES)
Tensors = Sequence[Tensor]
# Torch declares each method several times (lists or tensors, options or values): what comes is looked at.
_TorchsGroup: Any = dist.ProcessGroup


def make_group(options: Any, name: str | None, chosen: Mapping[str, Any] | None = None) -> Any:
    """A group over the collective `name` (None: the best here); `chosen`: its options, or its name."""
    gloo = gloo_of(options)
    beneath = plain_group(options, gloo)
    try:
        world = world_of(options, beneath)
        collective = collective_of(world, name, chosen or {})
    except PacelineError as error:
        raise as_torch(error) from error
    return beneath if collective is None else Group(world, collective, gloo)


class Group(_TorchsGroup):  # type: ignore[misc]
    """Torch's process group over a collective, gloo beneath."""

    def __init__(self, world: World, collective: Collective, gloo: dist.ProcessGroupGloo) -> None:
        super().__init__(world.rank, world.size)
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        self._register_backend(CPU, dist.ProcessGroup.BackendType.CUSTOM, gloo)
        self._gloo: Any = world.group
        self._collective = collective
        self._gate = Gate(world)
        self._engine = Engine(world.deadline, self._gate.everybody_is_here)

    def getBackendName(self) -> str:
        """C++ asks for it."""
        return "paceline"

    def shutdown(self) -> None:
        """destroy_process_group calls it."""
        if self._engine.close():
            self._collective.close()

    abort = shutdown

    # every rank's tensor combined

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        opts = _options(opts, AllreduceOptions, reduceOp=opts)
        given = [tensors] if isinstance(tensors, Tensor) else tensors
        operation = _operation(given, opts)
        if operation is None:
            return self._gloo.allreduce(given, opts)
        collective = self._collective
        return self._do(opts, given, lambda: moves.all_reduce(collective, given, operation))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        return self.allreduce(tensors, _renewed(opts))

    def reduce(self, tensors: Tensors, opts: Any = None) -> Any:
        opts = opts or ReduceOptions()
        operation, (tensor,) = _operation(tensors, opts), tensors
        if operation is None:
            return self._gloo.reduce(tensors, opts)
        collective, root = self._collective, opts.rootRank
        return self._do(opts, tensors, lambda: moves.reduce(collective, tensor, operation, root))

    def reduce_scatter(self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None) -> Any:
        opts = _options(opts, ReduceScatterOptions, reduceOp=opts)
        if isinstance(outs, Tensor):
            outs, ins = [outs], [ins]
        (out,), (parts,) = outs, ins
        operation = _operation([out, *parts], opts)
        if operation is None:
            return self._gloo.reduce_scatter(outs, ins, opts)
        collective = self._collective
        return self._do(opts, outs, lambda: moves.reduce_scatter(collective, out, parts, operation))

    def reduce_scatter_single(self, out: Tensor, x: Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_single_coalesced([out], [x], opts)

    def reduce_scatter_single_coalesced(self, outs: Tensors, xs: Tensors, opts: Any = None) -> Any:
        opts = opts or ReduceScatterOptions()
        _sizes(xs, outs, self.size(), "reduce_scatter")
        operation = _operation([*outs, *xs], opts)
        if operation is None:
            return self._gloo.reduce_scatter_single_coalesced(outs, xs, opts)
        collective = self._collective
        return self._do(opts, outs, lambda: moves.reduce_scatter_single(collective, outs, xs, operation))

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # tensors moved as they are

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        opts = _options(opts, BroadcastOptions, rootRank=opts)
        given = [tensors] if isinstance(tensors, Tensor) else tensors
        (tensor,) = given
        if not _dense(given):
            return self._gloo.broadcast(given, opts)
        collective, root = self._collective, opts.rootRank
        return self._do(opts, given, lambda: moves.broadcast(collective, tensor, root))

    def allgather(self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None) -> Any:
        opts = _options(opts, AllgatherOptions)
        if isinstance(ins, Tensor):
            outs, ins = [outs], [ins]
        (mine,), (x,) = outs, ins
        if not _dense([x]) or any(out.numel() != x.numel() or out.dtype != x.dtype for out in mine):
            return self._gloo.allgather(outs, ins, opts)
        collective = self._collective
        return self._do(opts, mine, lambda: moves.all_gather(collective, mine, x))

    def allgather_coalesced(self, out_lists: Sequence[Tensors], ins: Tensors, opts: Any = None) -> Any:
        opts = opts or AllgatherOptions()
        _dense(ins)
        collective, everything = self._collective, [out for outs in out_lists for out in outs]

        def gather() -> None:
            for number, x in enumerate(ins):
                moves.all_gather(collective, [outs[number] for outs in out_lists], x)

        return self._do(opts, everything, gather)

    def all_gather_single(self, out: Tensor, x: Tensor, opts: Any = None) -> Any:
        return self.all_gather_single_coalesced([out], [x], opts)

    def all_gather_single_coalesced(self, outs: Tensors, xs: Tensors, opts: Any = None) -> Any:
        opts = opts or AllgatherOptions()
        _sizes(outs, xs, self.size(), "all_gather")
        _dense(xs)
        collective = self._collective
        return self._do(opts, outs, lambda: moves.all_gather_single(collective, outs, xs))

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        opts = _options(opts, BarrierOptions)
        if opts.timeout <= timedelta(0) or opts.asyncOp:
            return self._do(opts, (), self._collective.barrier)
        opts.asyncOp, timeout = True, opts.timeout  # a time of its own: the waiting is apart from the barrier
        work = self._do(opts, (), self._collective.barrier)
        work.wait(timeout)
        return work

    def _do(self, opts: Any, results: Tensors, function: Callable[[], object]) -> Any:
        if _profiled():
            name = f"paceline:{sys._getframe(1).f_code.co_name}"
            function = functools.partial(_recorded, name, function)
        return self._engine.do(CollectiveWork(function, results), not opts.asyncOp)


def _recorded(name: str, function: Callable[[], object]) -> None:
    with torch.profiler.record_function(name):
        function()


def _options(opts: Any, kind: Any, **fields: Any) -> Any:
    """Torch's options; some calls give a bare value, or none."""
    if isinstance(opts, kind):
        return opts
    made = kind()
    if opts is not None:
        for name, value in fields.items():
            setattr(made, name, value)
    return made


def _renewed(opts: Any) -> Any:
    """Those of a coalesced all-reduce are of another class."""
    made = AllreduceOptions()
    if opts is not None:
        made.reduceOp, made.asyncOp = opts.reduceOp, opts.asyncOp
    return made


def _operation(tensors: Tensors, opts: Any) -> Operation | None:
    """None where gloo has to do it: sparse tensors, bit-wise operations."""
    dense = _dense(tensors)
    for tensor in tensors:
        if tensor.dtype not in _DTYPES:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise RuntimeError(
                f"Invalid scalar type: cannot combine {tensor.dtype} over ranks; convert it to one of {names}"
            )
    return _OPERATIONS.get(opts.reduceOp.op) if dense else None


def _dense(tensors: Tensors) -> bool:
    for tensor in tensors:
        if not tensor.is_cpu:
            raise RuntimeError(
                f"paceline combines CPU tensors and got one on {tensor.device}; "
                "make a group for it: dist.new_group(backend='nccl')"
            )
        if tensor.layout is not torch.strided:
            return False
    return True


def _sizes(large: Tensors, small: Tensors, size: int, name: str) -> None:
    for whole, part in zip(large, small, strict=True):
        if whole.numel() != part.numel() * size or whole.dtype != part.dtype:
            raise RuntimeError(
                f"{name}: {whole.numel()} {whole.dtype} are not {size} times {part.numel()} {part.dtype}"
            )


skip_in_compiled(make_group, *(each for each in vars(Group).values() if callable(each)))
