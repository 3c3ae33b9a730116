"""What a rank does in the tests of the torch.distributed backend: every call beside the same call of gloo."""

from __future__ import annotations

import gc
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import paceline.backend  # noqa: F401 - registers the names
from cases.collectives import values
from paceline.comm.world import World

OPERATIONS = {
    "sum": ReduceOp.SUM,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "product": ReduceOp.PRODUCT,
}


class Calls:
    """Every call of torch.distributed on one group, each returns the tensors that it leaves behind."""

    def __init__(self, group, kind: str, length: int, operation: str, later: bool) -> None:
        self.group, self.kind, self.length, self.later = group, kind, length, later
        self.op = OPERATIONS[operation]
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.last = dist.get_global_rank(group, self.size - 1)

    def mine(self, times: int = 1, seed: int = 0) -> torch.Tensor:
        return values(self.rank, self.length * times, self.kind, seed)

    def empty(self, times: int = 1) -> torch.Tensor:
        return torch.zeros(self.length * times, dtype=getattr(torch, self.kind))

    def rows(self) -> list[torch.Tensor]:
        return [self.empty() for _ in range(self.size)]

    def parts(self) -> list[torch.Tensor]:
        return [self.mine(seed=number) for number in range(self.size)]

    def do(self, call, *arguments, **options):
        work = call(*arguments, group=self.group, async_op=self.later, **options)
        if self.later:
            work.wait()

    def all_reduce(self):
        x = self.mine()
        self.do(dist.all_reduce, x, op=self.op)
        return [x]

    def all_reduce_strided(self):
        x = self.mine(2)[::2]
        whole = x.clone()
        self.do(dist.all_reduce, whole if dist.get_backend(self.group) == "gloo" else x, op=self.op)
        return [whole if dist.get_backend(self.group) == "gloo" else x.clone()]

    def all_reduce_coalesced(self):
        xs = [self.mine(seed=1), self.mine(3, seed=2)]
        self.do(dist.all_reduce_coalesced, xs, op=self.op)
        return xs

    def broadcast(self):
        x = self.mine()
        self.do(dist.broadcast, x, src=self.last)
        return [x]

    def reduce(self):
        x = self.mine()
        self.do(dist.reduce, x, dst=self.last, op=self.op)
        return [x] if self.rank == self.size - 1 else []

    def all_gather(self):
        rows = self.rows()
        self.do(dist.all_gather, rows, self.mine())
        return rows

    def all_gather_single(self):
        out = self.empty(self.size)
        self.do(dist.all_gather_into_tensor, out, self.mine())
        return [out]

    def all_gather_coalesced(self):
        lists = [self.rows(), self.rows()]
        lists = [list(row) for row in zip(*lists, strict=True)]
        self.do(dist.all_gather_coalesced, lists, [self.mine(), self.mine(seed=3)])
        return [row for rows in lists for row in rows]

    def reduce_scatter(self):
        out = self.empty()
        self.do(dist.reduce_scatter, out, self.parts(), op=self.op)
        return [out]

    def reduce_scatter_single(self):
        out = self.empty()
        self.do(dist.reduce_scatter_tensor, out, self.mine(self.size), op=self.op)
        return [out]

    def all_to_all(self):
        rows = self.rows()
        self.do(dist.all_to_all, rows, self.parts())
        return rows

    def all_to_all_single(self):
        out = self.empty(self.size)
        self.do(dist.all_to_all_single, out, self.mine(self.size))
        return [out]

    def gather(self):
        rows = self.rows() if self.rank == self.size - 1 else None
        self.do(dist.gather, self.mine(), rows, dst=self.last)
        return rows or []

    def scatter(self):
        out = self.empty()
        self.do(dist.scatter, out, self.parts() if self.rank == self.size - 1 else None, src=self.last)
        return [out]

    def send_and_recv(self):
        right = dist.get_global_rank(self.group, (self.rank + 1) % self.size)
        left = dist.get_global_rank(self.group, (self.rank - 1) % self.size)
        out = self.empty()
        if self.size == 1:
            return [out]
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.irecv, out, left, group=self.group),
                dist.P2POp(dist.isend, self.mine(), right, group=self.group),
            ]
        )
        for work in works:
            work.wait()
        return [out]

    def objects(self):
        found = [None] * self.size
        dist.all_gather_object(found, {"rank": self.rank}, group=self.group)
        shared = [f"from {self.rank}", self.rank]
        dist.broadcast_object_list(shared, src=self.last, group=self.group)
        return [torch.tensor([each["rank"] for each in found]), torch.tensor(shared[1])]

    def coalescing_manager(self):
        xs = [self.mine(seed=1), self.mine(seed=2)]
        with dist._coalescing_manager(group=self.group, async_ops=self.later) as manager:
            for x in xs:
                dist.all_reduce(x, group=self.group, op=self.op)
        if self.later:
            manager.wait()
        return xs


NAMES = [
    name for name in vars(Calls) if name not in ("mine", "empty", "rows", "parts", "do") and name[0] != "_"
]


def _groups(world: World, members: list[int] | None, backend: str):
    ours = dist.new_group(members, backend=backend)
    theirs = dist.new_group(members, backend="gloo")
    return (ours, theirs) if members is None or world.rank in members else (None, None)


def every_call(
    world: World, backend: str, kinds: list[str], lengths: list[int], members: list[int] | None = None
) -> list[str]:
    """Names of the calls whose results differ from gloo's."""
    ours, theirs = _groups(world, members, backend)
    wrong = []
    if ours is None:
        return wrong
    for kind in kinds:
        for length in lengths:
            for number, name in enumerate(NAMES):
                operation = list(OPERATIONS)[number % 4]
                for later in (False, True):
                    made = [Calls(group, kind, length, operation, later) for group in (ours, theirs)]
                    found = [getattr(calls, name)() for calls in made]
                    if not _same(*found):
                        wrong.append(f"{name} {kind} {length} {operation} {later}")
    dist.barrier(group=ours)
    return wrong


def _same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    close = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.06, torch.float16: 0.01}
    return len(ours) == len(theirs) and all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and torch.allclose(a, b, rtol=close.get(a.dtype, 0), atol=close.get(a.dtype, 0))
        for a, b in zip(ours, theirs, strict=True)
    )


def beyond_gloo(world: World) -> dict:
    """What gloo refuses and ours does, and what only gloo does."""
    group = dist.new_group(backend="paceline")
    average = torch.full((3,), float(world.rank))
    dist.all_reduce(average, op=ReduceOp.AVG, group=group)
    bits = torch.tensor([1 << world.rank])
    dist.all_reduce(bits, op=ReduceOp.BOR, group=group)
    sparse = torch.sparse_coo_tensor([[world.rank]], [1.0], (world.size,))
    dist.all_reduce(sparse, group=group)
    refused = ""
    try:
        dist.all_reduce(torch.zeros(2, dtype=torch.complex64), op=ReduceOp.MAX, group=group)
    except (RuntimeError, ValueError) as error:
        refused = str(error)
    unknown = ""
    try:
        dist.all_reduce(torch.zeros(2, dtype=torch.uint16), group=group)
    except RuntimeError as error:
        unknown = str(error)
    still = torch.ones(1)
    dist.all_reduce(still, group=group)
    return {
        "average": average.tolist(),
        "bits": int(bits),
        "sparse": sparse.to_dense().tolist(),
        "complex": refused,
        "unknown": unknown,
        "still": float(still),
    }


def futures(world: World) -> dict:
    """Callbacks that start and wait for other collectives, while others are queued; order kept."""
    group = dist.new_group(backend="paceline")
    seen = []

    def follow(future):
        x = future.value()[0]
        second = torch.ones(2)
        dist.all_reduce(second, group=group, async_op=True).get_future().wait()
        seen.append(float(second[0]))
        return x * 10

    first = torch.full((4,), float(world.rank))
    slow = threading.Event()
    if world.rank == 0:  # the others queue theirs, and are in their callbacks when rank 0 comes
        slow.wait(0.05)
    works = [dist.all_reduce(torch.ones(5), group=group, async_op=True) for _ in range(3)]
    future = dist.all_reduce(first, group=group, async_op=True).get_future().then(follow)
    value = future.wait()
    for work in works:
        work.wait()
    return {"value": value.tolist(), "seen": seen, "done": all(work.is_completed() for work in works)}


def dropped(world: World) -> bool:
    """Works nobody holds are done all the same, and leave memory alone."""
    group = dist.new_group(backend="paceline")
    x = torch.ones(1000)
    for _ in range(500):
        dist.all_reduce(x, op=ReduceOp.MAX, group=group, async_op=True)
    gc.collect()
    dist.barrier(group=group)
    return bool((x == 1).all())


def timed_wait(world: World) -> str:
    """A wait with a time of its own."""
    group = dist.new_group(backend="paceline")
    dist.barrier(group=group)
    said = ""
    if world.rank == 0:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        try:
            work.wait(timedelta(seconds=0.05))
        except RuntimeError as error:
            said = str(error)
        world.store.set("tried", "")
        work.wait()
    else:
        world.store.get("tried")
        dist.all_reduce(torch.ones(3), group=group)
    return said


def interleaved(world: World) -> float:
    """A collective that was started does not keep a message from passing."""
    group = dist.new_group(backend="paceline")
    x, message = torch.ones(3), torch.full((2,), float(world.rank))
    if world.rank == 0:
        work = dist.all_reduce(x, group=group, async_op=True)
        dist.send(message + 7, 1, group=group)
        work.wait()
    else:
        dist.recv(message, 0, group=group)
        dist.all_reduce(x, group=group)
    return float(message[0]) + float(x[0])


def chosen(world: World, backend: str, options: dict | None = None) -> tuple[str, str]:
    """What a group is made of, or why it cannot be."""
    try:
        group = dist.new_group(backend=backend, pg_options=options)
    except RuntimeError as error:
        return type(error).__name__, str(error)
    x = torch.ones(4)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [world.size] * 4
    kept = type(getattr(group, "_collective", None)).__name__
    dist.destroy_process_group(group)
    try:
        dist.all_reduce(x, group=group)
    except (RuntimeError, ValueError) as error:
        return kept, str(error)
    return kept, ""
