"""Every collective in the registry, by existing: right, and the same bits on every rank."""

from __future__ import annotations

import functools
import operator

import pytest
import torch

from cases.collectives import values
from paceline.registry import COLLECTIVES

SIZES = [1, 2, 3, 4, 5]
LENGTHS = [0, 1, 2, 5, 16, 257]
KINDS = ["float32", "float64", "int32", "int64"]
OPERATIONS = ["sum", "avg", "min", "max", "product"]


def expected(inputs: list[torch.Tensor], operation: str) -> torch.Tensor:
    """In float64 (exact for the small integers)."""
    wide = [x.double() for x in inputs]
    if operation in ("min", "max"):
        return functools.reduce(torch.minimum if operation == "min" else torch.maximum, wide)
    if operation == "product":
        return functools.reduce(operator.mul, wide)
    total = functools.reduce(operator.add, wide)
    if operation == "sum":
        return total
    mean = total / len(wide)
    return mean if inputs[0].is_floating_point() else mean.trunc()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", COLLECTIVES.names())
def test_all_reduce(zygote, name, size):
    ranks = zygote.run(
        "cases.collectives:all_reduce", size, name=name, lengths=LENGTHS, kinds=KINDS, operations=OPERATIONS
    )
    for (length, kind, operation), first in ranks[0].items():
        case = f"{length} {kind} {operation}"
        assert all(torch.equal(first, other[length, kind, operation]) for other in ranks), f"bits: {case}"
        want = expected([values(rank, length, kind) for rank in range(size)], operation)
        tolerance = 1e-12 if kind == "float64" else 1e-5
        torch.testing.assert_close(first.double(), want, rtol=tolerance, atol=tolerance, msg=case)


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("name", COLLECTIVES.names())
def test_the_others_and_their_defaults(zygote, name, size):
    ranks = zygote.run("cases.collectives:others", size, name=name, length=11)
    inputs = [values(rank, 11, "float32") for rank in range(size)]
    total = sum(values(rank, 11, "float64") for rank in range(size))
    for label in ("own", "default"):
        for rank, found in enumerate(ranks):
            assert torch.equal(found[label, "broadcast"], inputs[-1])
            assert torch.equal(found[label, "all_gather"], torch.stack(inputs))
            part = total.tensor_split(size)[rank]
            torch.testing.assert_close(found[label, "reduce_scatter"], part, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", COLLECTIVES.names())
def test_measured_counts_calls_and_payload(zygote, name):
    for calls, nbytes, sensible in zygote.run("cases.collectives:measured", 2, name=name):
        assert (calls, nbytes) == (5, 40 + 40 + 12 + 28)
        assert sensible
