"""The mean over all ranks of a flat tensor, in a message of fewer bits; what rounding loses is sent later.

message    bytes an element    how
float32    4                   all-reduce
bf16 fp16  2                   all-reduce, accumulated in float32
int8       1 + 4/256           blocks of 256 numbers with one scale; all-gather, averaged in rank order

Error feedback: the message is round(x + residual), the residual what that misses; over many rounds nothing is
lost, only late.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.comm.collectives import Collective

_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
MESSAGES = ("float32", *_HALVES, "int8")
_BLOCK = 256
_LEVELS = 127


def averaged(collective: Collective, x: Tensor, message: str, residual: Tensor) -> Tensor:
    """The mean of all ranks' x, the same bits everywhere; `residual` is this rank's and is changed."""
    if message == "float32":
        return collective.all_reduce_(x, "avg")
    wanted = x + residual
    if message == "int8":
        sent, mean = _bytes(collective, wanted)
    else:
        half = wanted.to(_HALVES[message])
        sent = half.to(x.dtype)
        mean = collective.all_reduce_(half, "avg").to(x.dtype)
    torch.sub(wanted, sent, out=residual)
    return mean


def _bytes(collective: Collective, x: Tensor) -> tuple[Tensor, Tensor]:
    """What this rank's message says, and the mean of everybody's."""
    blocks = torch.nn.functional.pad(x, (0, -len(x) % _BLOCK)).view(-1, _BLOCK)
    scales = (blocks.abs().amax(1, keepdim=True) / _LEVELS).float()
    levels = (blocks / scales.clamp_min(torch.finfo(torch.float32).tiny)).round_().to(torch.int8)
    packed = torch.cat([levels.view(-1), scales.view(torch.int8).view(-1)])
    rows = collective.all_gather(packed)
    mean = torch.zeros_like(blocks)
    for row in rows:
        mean += _unpacked(row, len(blocks))
    sent, mean = _unpacked(packed, len(blocks)).to(x.dtype), mean.div_(len(rows))
    return sent.view(-1)[: len(x)], mean.view(-1)[: len(x)]


def _unpacked(packed: Tensor, blocks: int) -> Tensor:
    levels, scales = packed[: blocks * _BLOCK], packed[blocks * _BLOCK :].clone()
    return levels.view(blocks, _BLOCK).float() * scales.view(torch.float32).view(blocks, 1)
