"""Call: what a rank is asked of a collective, as six whole numbers that ranks can compare.

    rank 0   (41, sum, 1024, float32, -)  ┐
    rank 1   (41, sum, 1024, float32, -)  ┼─ all the same? go on
    rank 2   (41, broadcast, 1024, …, 0)  ┘  else the same one line on every rank, and nobody starts

Ranks that disagree would otherwise hang, abort, or get wrong numbers without a word (gloo does each).

A label, where the caller gives one (`collective.labelled("bucket 0")`), is compared too: two buckets of one
length in another order differ by nothing else. It travels in the number of the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from paceline.comm.collectives._base import OPERATIONS, Operation
from paceline.errors import ConfigError

KINDS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "allocate", "close")
"""A kind's number is its place; the C core knows the first five."""
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip
"""A type's number on the wire and in the C core is its place here; others are compared by their bytes."""

OPERATION_BITS = 3  # of the number that holds operation and label
LABEL_LENGTH = 11
_LETTERS = " abcdefghijklmnopqrstuvwxyz0123456789_"


@dataclass(frozen=True)
class Call:
    """One call of one rank."""

    number: int
    kind: str
    elements: int = 0
    dtype: int = -1
    operation: Operation = "sum"
    root: int = 0
    label: int = 0

    def encode(self) -> tuple[int, int, int, int, int, int]:
        """As whole numbers, in the order of the C core's descriptor."""
        operation = OPERATIONS.index(self.operation) | self.label << OPERATION_BITS
        return self.number, KINDS.index(self.kind), self.elements, self.dtype, operation, self.root

    @classmethod
    def decode(cls, numbers: Sequence[int]) -> Call:
        """The counterpart of encode."""
        number, kind, elements, dtype, operation, root = numbers
        name = OPERATIONS[operation & (1 << OPERATION_BITS) - 1]
        return cls(number, KINDS[kind], elements, dtype, name, root, operation >> OPERATION_BITS)

    def __str__(self) -> str:
        name = {"all_reduce": self.operation, "reduce_scatter": f"reduce_scatter ({self.operation})"}.get(
            self.kind, self.kind
        )
        label = f" ({label_text(self.label)})" if self.label else ""
        if self.kind in ("barrier", "close"):
            return f"{name} #{self.number}{label}"
        kind = str(DTYPES[self.dtype]).removeprefix("torch.") if self.dtype >= 0 else "bytes"
        root = f" from rank {self.root}" if self.kind == "broadcast" else ""
        return f"{name} #{self.number}, {self.elements} {kind}{root}{label}"


def label_number(text: str) -> int:
    """A label as a whole number below 2^58: up to eleven small letters, digits, spaces and underscores."""
    if len(text) > LABEL_LENGTH or text != text.strip() or not set(text) <= set(_LETTERS):
        raise ConfigError(
            f"label {text!r}: give at most {LABEL_LENGTH} small letters, digits, inner spaces and underscores"
        )
    number = 0
    for letter in text:
        number = number * len(_LETTERS) + _LETTERS.index(letter)
    return number


def label_text(number: int) -> str:
    """The counterpart of label_number."""
    text = ""
    while number:
        number, letter = divmod(number, len(_LETTERS))
        text = _LETTERS[letter] + text
    return text


def dtype_number(dtype: torch.dtype) -> int:
    """Its place in DTYPES, or -1."""
    return DTYPES.index(dtype) if dtype in DTYPES else -1


def difference(calls: Sequence[Call]) -> str | None:
    """One line that shows both sides when the calls (in rank order) are not all the same."""
    for rank, call in enumerate(calls):
        if call != calls[0]:
            return f"ranks disagree: rank {rank} is at {call}; rank 0 at {calls[0]}"
    return None
