"""scatter_evaluate: rank 0 alone has the data set; it sends each rank its part, batch after batch.

    rank 0   header (sizes, types) ─▶ all      batch i of rank 1, 2, … ─▶ them      its own batch i
    rank r                                     receive batch i ─ evaluate
    all      sums and counts, added exactly

Use `totals` where every rank can read the data: it sends nothing but the result. Here every sample travels
once. A message a field and batch; rank 0 holds one batch at a time, so nothing but time grows with the set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from paceline.comm.collectives import Collective
from paceline.comm.links import Link
from paceline.comm.world import World
from paceline.data.indexed import Indexed
from paceline.data.shard import evaluation_slice
from paceline.errors import ConfigError
from paceline.registry import LINKS
from paceline.train.evaluate import Measure, Totals, added, classification, cut, sums_of

_TYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
_Field = tuple[torch.dtype, tuple[int, ...]]  # of one sample


def scatter_evaluate(
    model: nn.Module,
    data: Indexed | None,
    world: World,
    collective: Collective,
    *,
    measure: Measure = classification,
    batch: int = 512,
) -> Totals:
    """The exact totals, on every rank; `data` is rank 0's, what the others give is not looked at."""
    size, fields = _header(data, world, collective)
    link: Link = LINKS.make("torch_p2p", world)
    mine = evaluation_slice(size, world.rank, world.size)
    own = mine.stop - mine.start
    parts = [_lists(size, rank, world.size, batch) for rank in range(world.size)]
    lengths = [len(some) for some in parts[world.rank]]
    if world.rank == 0 and data is not None:
        batches = _send(data, parts, link)
    else:
        batches = _receive(lengths, fields, link)
    sums = sums_of(model, batches, world.device, measure)
    link.close()
    return added(collective, sums, own)


def _lists(size: int, rank: int, ranks: int, batch: int) -> list[Any]:
    """The batches of a rank; one sample, which does not count, where it has none."""
    part = evaluation_slice(size, rank, ranks)
    return cut(part.start, max(part.stop, part.start + 1), batch, size)


def _send(data: Indexed, parts: list[list[Any]], link: Link) -> Iterator[tuple[Any, ...]]:
    """Send every other rank its next batch, then give rank 0's own; rank 0 has the largest part."""
    streams = [data.batches(lists) for lists in parts]
    for own in streams[0]:
        for rank, stream in enumerate(streams[1:], start=1):
            for field in next(stream, ()):
                link.send(field.contiguous(), rank)
        yield own


def _receive(lengths: list[int], fields: list[_Field], link: Link) -> Iterator[tuple[Any, ...]]:
    for length in lengths:
        found = [torch.empty(length, *shape, dtype=dtype) for dtype, shape in fields]
        for field in found:
            link.recv(field, 0)
        yield tuple(found)


def _header(data: Indexed | None, world: World, collective: Collective) -> tuple[int, list[_Field]]:
    """Rank 0's number of samples, and the type and shape of each field: numbers only, on every rank."""
    numbers = _described(data) if world.rank == 0 else []
    length = collective.broadcast_(torch.tensor([len(numbers)]))
    words = torch.tensor(numbers) if world.rank == 0 else torch.zeros(int(length), dtype=torch.int64)
    size, *rest = collective.broadcast_(words).tolist() if int(length) else [0]
    if size < 1:
        raise ConfigError(
            "scatter_evaluate: rank 0 has no samples of tensors; give it a data set whose batches are tensors"
        )
    fields: list[_Field] = []
    while rest:
        kind, dimensions, *rest = rest
        fields.append((_TYPES[kind], tuple(rest[:dimensions])))
        rest = rest[dimensions:]
    return size, fields


def _described(data: Indexed | None) -> list[int]:
    """[samples, then type, dimensions and shape of each field]; nothing where that cannot be sent."""
    if data is None or not len(data):
        return []
    numbers = [len(data)]
    for field in next(data.batches(cut(0, 1, 1, 1))):
        if not isinstance(field, Tensor) or field.dtype not in _TYPES:
            return []
        numbers += [_TYPES.index(field.dtype), field.dim() - 1, *field.shape[1:]]
    return numbers
