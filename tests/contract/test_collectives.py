"""Every collective in the registry, by existing: right, and the same bits on every rank.

Those that use a link are tried on the whole grid with ranks that are threads of this process, those that use none
with real ranks; everything in the registry is tried by real ranks.
"""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cases import collectives as cases
from cases.collectives import values
from paceline.comm.background import Background
from paceline.comm.calls import DTYPES
from paceline.comm.checked import Checked
from paceline.comm.collectives import OPERATIONS, Collective
from paceline.comm.collectives.auto import Auto
from paceline.comm.links.thread import in_threads
from paceline.comm.measured import Measured
from paceline.comm.regrouped import Regrouped
from paceline.comm.shm import unavailable
from paceline.errors import ConfigError
from paceline.registry import COLLECTIVES, option_hints

NAMES = COLLECTIVES.names()
OVER_LINKS = [name for name in NAMES if "link" in option_hints(COLLECTIVES.load(name))]
WITHOUT_LINKS = [name for name in NAMES if name not in OVER_LINKS]
SIZES = [1, 2, 3, 4, 5, *(pytest.param(p, marks=pytest.mark.slow) for p in (7, 8, 13))]
LENGTHS = [0, 1, 2, 5, 16, 257, 65537]
KINDS = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
FEW_KINDS = ["float32", "bfloat16", "int64"]
ALL_KINDS = {"shm": KINDS}  # 2 s a size; gloo would take 15 s a size, and is torch's to test
COMBINE = {
    "sum": torch.add,
    "avg": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
    "product": torch.mul,
}
# Halves are added in float32 and rounded once: half a step of theirs, and float32's errors before.
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2**-8, "float16": 2**-10}


def expected(inputs: list[torch.Tensor], operation: str) -> torch.Tensor:
    """In float64; whole numbers in their own type, where they wrap around; sum and product of truths: or, and."""
    first = inputs[0]
    if first.is_floating_point():
        inputs = [x.double() for x in inputs]
    elif first.dtype == torch.bool:
        operation = {"sum": "max", "product": "min"}.get(operation, operation)
    total = functools.reduce(COMBINE[operation], inputs)
    if operation != "avg":
        return total
    return torch.div(total, len(inputs), rounding_mode=None if first.is_floating_point() else "trunc")


def check(ranks: list[dict], lengths: list[int], kinds: list[str], loose: float = 0.0) -> None:
    """All ranks hold the same bits, and they are right."""
    for kind in kinds:
        for length in lengths:
            inputs = [values(rank, length, kind) for rank in range(len(ranks))]
            for operation in OPERATIONS:
                case = f"{length} {kind} {operation}"
                found = [rank[length, kind, operation] for rank in ranks]
                if kind == "bool" and operation == "avg":
                    assert all("cannot average booleans" in one for one in found), case
                    continue
                assert all(torch.equal(found[0], other) for other in found[1:]), f"bits: {case}"
                if not inputs[0].is_floating_point():
                    assert torch.equal(found[0], expected(inputs, operation)), case
                    continue
                got, want = found[0].double(), expected(inputs, operation)
                rtol = max(TOLERANCE[kind], loose)
                torch.testing.assert_close(got, want, rtol=rtol, atol=max(1e-5, loose), msg=case)


def threads(name: str, size: int, function, **arguments) -> list[dict]:
    options = {"link": "thread"}
    return in_threads(size, lambda world: function(world, name=name, options=options, **arguments))


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_memory_of_another_size_is_never_written(zygote):
    """The core is given addresses: what lies behind them is checked before."""
    for said in zygote.run("cases.collectives:lent_into_wrong_memory", 2):
        assert said == ["`out` has to be 50 torch.float32"] * 3


VERBS = {name for name, value in vars(Collective).items() if callable(value) and name[0] != "_"}


@pytest.mark.parametrize("decorator", [Auto, Background, Checked, Measured, Regrouped])
def test_what_stands_for_another_passes_every_verb_on(decorator):
    """A default of the seam in its place would be right and slow, so nothing else would notice."""
    own = {"decorated", "regroup"}  # what only the outermost and the one that can do it have
    own |= {"labelled"} if decorator is Regrouped else set()  # its users have no labels
    assert VERBS - own <= vars(decorator).keys()
    assert {"regroup"} <= vars(Measured).keys() & vars(Regrouped).keys()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", OVER_LINKS)
def test_all_reduce_over_a_link(name, size):
    ranks = threads(name, size, cases.all_reduce, lengths=LENGTHS, kinds=KINDS, operations=list(OPERATIONS))
    check(ranks, LENGTHS, KINDS)


def by_real_ranks(zygote, name: str, size: int, lengths: list[int], kinds: list[str]) -> None:
    arguments = {"name": name, "lengths": lengths, "kinds": kinds, "operations": list(OPERATIONS)}
    ranks = zygote.run("cases.collectives:all_reduce", size, **arguments)
    rounds_at_every_addition = name in ("native", "auto")  # gloo does, and auto may choose it
    check(ranks, lengths, kinds, loose=0.1 if rounds_at_every_addition else 0.0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WITHOUT_LINKS)
def test_all_reduce_without_links(zygote, name, size):
    by_real_ranks(zygote, name, size, LENGTHS, ALL_KINDS.get(name, FEW_KINDS))


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", OVER_LINKS)
def test_all_reduce_over_links_by_real_ranks(zygote, name, size):
    by_real_ranks(zygote, name, size, [0, 1, 257, 65537], FEW_KINDS)


def check_others(ranks: list[dict], lengths: list[int], kinds: list[str]) -> None:
    size = len(ranks)
    for length in lengths:
        for kind in kinds:
            inputs = [values(rank, length, kind) for rank in range(size)]
            for rank, found in enumerate(ranks):
                for root in {0, size // 2, size - 1}:
                    assert torch.equal(found[length, kind, "broadcast", root], inputs[root])
                assert torch.equal(found[length, kind, "all_gather"], torch.stack(inputs))
                for operation in ("sum", "max"):
                    part = expected(inputs, operation).tensor_split(size)[rank]
                    off = max(1e-5, TOLERANCE.get(kind, 0))
                    for got in (found[length, kind, way, operation] for way in ("reduce_scatter", "lent")):
                        torch.testing.assert_close(got.to(part.dtype), part, rtol=off, atol=off)
                assert found[length, kind, "allocated"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", OVER_LINKS)
def test_the_others_over_a_link(name, size):
    kinds = ["float64", "bfloat16", "int16", "uint8"]
    check_others(threads(name, size, cases.others, lengths=LENGTHS, kinds=kinds), LENGTHS, kinds)


@pytest.mark.parametrize("size", SIZES)
def test_the_others_in_shared_memory(zygote, size):
    kinds = (
        ["float64", "float16", "int16", "bool"] if size < 8 else ["float32"]
    )  # 13 ranks on 2 cores are slow
    ranks = zygote.run("cases.collectives:others", size, name="shm", lengths=LENGTHS, kinds=kinds)
    check_others(ranks, LENGTHS, kinds)


@pytest.mark.parametrize("own", [True, False], ids=["own", "default"])
@pytest.mark.parametrize("size", [1, 3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_the_others_by_real_ranks(zygote, name, size, own):
    lengths, kinds = [0, 11, 300], ["float32", "int64", "int16"]
    ranks = zygote.run("cases.collectives:others", size, name=name, lengths=lengths, kinds=kinds, own=own)
    check_others(ranks, lengths, kinds)


CASE = st.tuples(
    st.sets(st.integers(0, 3), min_size=1).map(sorted),
    st.sampled_from(["all_reduce", "broadcast", "all_gather", "reduce_scatter"]),
    st.one_of(st.integers(0, 40), st.sampled_from(LENGTHS), st.integers(0, 200_000)),
    st.sampled_from([kind for kind in KINDS if kind != "bool"]),
    st.sampled_from(OPERATIONS),
)
PLAIN_NAMES = [
    name for name in NAMES if name not in ("native", "auto")
]  # gloo itself, and what may choose it


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN_NAMES)
@settings(max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate])
@given(cases=st.lists(CASE, min_size=12, max_size=25))
def test_some_ranks_some_type_some_length_beside_gloo(zygote, name, cases):
    for rank in zygote.run("cases.collectives:beside_gloo", 4, name=name, cases=cases):
        for (members, verb, length, kind, operation), found in zip(cases, rank, strict=True):
            if found is None:
                continue
            ours, gloos = found
            case = f"{verb} of {length} {kind} ({operation}) by ranks {members}"
            assert ours.dtype == gloos.dtype and ours.shape == gloos.shape, case
            if ours.is_floating_point():
                off = {"bfloat16": 0.1, "float16": 0.02}.get(
                    kind, 1e-4
                )  # gloo rounds halves at every addition
                torch.testing.assert_close(ours, gloos, rtol=off, atol=off, msg=case)
            else:
                assert torch.equal(ours, gloos), case


@pytest.mark.parametrize("name", OVER_LINKS)
def test_inputs_stay_as_they_are_and_strided_tensors_are_right(name):
    for rank, (kept, strided, want) in enumerate(threads(name, 3, cases.unusual)):
        assert torch.equal(kept, values(rank, 40, "float32"))
        assert torch.equal(strided, want)


@pytest.mark.parametrize("name", OVER_LINKS)
def test_a_nan_anywhere_is_a_nan_everywhere(name):
    for found in threads(name, 4, cases.nans):
        assert all(x[2].isnan() and x[:2].isfinite().all() for x in found)


@pytest.mark.parametrize("name", OVER_LINKS)
def test_a_type_that_cannot_be_combined_is_refused_by_all_before_anything_is_sent(name):
    def refused(world, name, options):
        collective = COLLECTIVES.make(name, world, options=options)
        with pytest.raises(ConfigError, match=r"cannot combine torch\.complex64.*to one of float32"):
            collective.all_reduce_(torch.zeros(3, dtype=torch.complex64))
        return collective.all_reduce_(torch.ones(3))

    assert all(torch.equal(x, torch.full((3,), 3.0)) for x in threads(name, 3, refused))


@pytest.mark.parametrize("name", NAMES)
def test_measured_counts_calls_and_payload(zygote, name):
    for calls, nbytes, sensible in zygote.run("cases.collectives:measured", 2, name=name):
        assert (calls, nbytes) == (5, 40 + 40 + 12 + 28)
        assert sensible
