"""Call: what a rank is asked of a collective, as six whole numbers that ranks can compare.

    rank 0   (41, sum, 1024, float32, -)  ┐
    rank 1   (41, sum, 1024, float32, -)  ┼─ all the same? go on
    rank 2   (41, broadcast, 1024, …, 0)  ┘  else the same one line on every rank, and nobody starts

Ranks that disagree would otherwise hang, abort, or get wrong numbers without a word (gloo does each).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from paceline.comm.collectives._base import OPERATIONS, Operation

KINDS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier")
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip
"""A type's number on the wire and in the C core is its place here; others are compared by size alone."""


@dataclass(frozen=True)
class Call:
    """One call of one rank."""

    number: int
    kind: str
    elements: int = 0
    dtype: int = -1
    operation: Operation = "sum"
    root: int = 0

    def encode(self) -> tuple[int, int, int, int, int, int]:
        """As whole numbers, in the order of the C core's descriptor."""
        operation = OPERATIONS.index(self.operation)
        return self.number, KINDS.index(self.kind), self.elements, self.dtype, operation, self.root

    @classmethod
    def decode(cls, numbers: Sequence[int]) -> Call:
        """The counterpart of encode."""
        number, kind, elements, dtype, operation, root = numbers
        return cls(number, KINDS[kind], elements, dtype, OPERATIONS[operation], root)

    def __str__(self) -> str:
        reduces = self.kind in ("all_reduce", "reduce_scatter")
        name = {"all_reduce": self.operation, "reduce_scatter": f"reduce_scatter ({self.operation})"}.get(
            self.kind, self.kind
        )
        if self.kind == "barrier":
            return f"{name} #{self.number}"
        kind = str(DTYPES[self.dtype]).removeprefix("torch.") if self.dtype >= 0 else "elements"
        root = "" if reduces or self.kind == "all_gather" else f" from rank {self.root}"
        return f"{name} #{self.number}, {self.elements} {kind}{root}"


def dtype_number(dtype: torch.dtype) -> int:
    """Its place in DTYPES, or -1."""
    return DTYPES.index(dtype) if dtype in DTYPES else -1


def difference(calls: Sequence[Call]) -> str | None:
    """One line that shows both sides when the calls (in rank order) are not all the same."""
    for rank, call in enumerate(calls):
        if call != calls[0]:
            return f"ranks disagree: rank {rank} is at {call}; rank 0 at {calls[0]}"
    return None
