"""One physical copy of the parameters: the updates of one process, state once, and the same bits for any p."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases.one_copy import alone
from cases.strategies import plain
from paceline.strategies._slices import _in_order, tree_sum

OPTIMIZERS = [
    ("SGD", {"momentum": 0.9, "nesterov": True, "fused": True}),
    ("AdamW", {"fused": True}),
    ("Adam", {"amsgrad": True}),
    ("RMSprop", {"centered": True}),
]


@pytest.mark.parametrize("collective", ["shm", "native"])
@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_groups_are_respected_and_state_is_kept_once(zygote, size, optimizer, options, collective):
    wanted = alone(optimizer, options, 5)
    ranks = zygote.run(
        "cases.one_copy:groups", size, collective=collective, optimizer=optimizer, options=options, steps=5
    )
    for parameters, _, _ in ranks:
        for got, want in zip(parameters, wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    elements = sum(w.numel() for w in wanted)
    padding = 2 * 64 * size  # two groups, each filled up to a multiple of 64 a rank
    assert elements <= sum(slices for _, _, slices in ranks) <= elements + padding
    kept = {"SGD": 1, "AdamW": 2, "Adam": 3, "RMSprop": 2}[optimizer]
    assert sum(state for _, state, _ in ranks) == kept * sum(slices for _, _, slices in ranks)


def test_all_ranks_read_the_same_memory(zygote):
    assert zygote.run("cases.one_copy:physical", 3) == [[5.0, 7.0]] * 3


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("collective", ["shm", "native"])
def test_deterministic_gives_the_same_bits_for_every_number_of_ranks(zygote, collective, optimizer):
    runs = {}
    for size in (1, 2, 3, 4):
        ranks = zygote.run(
            "cases.one_copy:deterministic",
            size,
            collective=collective,
            counts=[24, 23, 7, 2],
            optimizer=optimizer,
        )
        runs[size] = [parameters for parameters, _ in ranks]
        # the ranks' own random numbers go on as if nothing had been drawn in between
        own = [torch.Generator().manual_seed(1000 + rank) for rank in range(size)]
        assert [drawn for _, drawn in ranks] == [float(torch.rand(1, generator=g)) for g in own]
    for size, ranks in runs.items():
        for parameters in ranks:
            assert all(torch.equal(a, b) for a, b in zip(parameters, runs[1][0], strict=True)), (
                f"{size} ranks"
            )


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("lbfgs", "LBFGS may not treat every element alone; use ddp"),
        ("own", "Scaled may not treat every element alone"),
        ("trusted", "taken"),
        ("late", "has made steps already; attach it before the first"),
        ("norm", "batch statistics depend on how the batch is dealt"),
        ("shards", "2 ranks share 1 shards"),
    ],
)
def test_what_it_cannot_do_is_said(zygote, case, said):
    for line in zygote.run("cases.one_copy:refused", 2, case=case):
        assert said in line


def test_clipping_is_that_of_ddp(zygote):
    ours, ddps = (zygote.run("cases.one_copy:clipped", 2, name=name)[0] for name in ("one_copy", "ddp"))
    for got, want in zip(ours, ddps, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)


def test_gradients_that_a_loop_drops_come_back(zygote):
    first, second = zygote.run("cases.one_copy:own_loop", 2)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    start, _ = plain([])
    assert not any(torch.equal(a, b) for a, b in zip(first, start, strict=True))


@given(st.integers(1, 40), st.data())
def test_the_tree_depends_on_the_seats_alone(seats, data):
    ranks = data.draw(st.integers(1, seats))
    parts = [torch.tensor([float(i) + 0.1]) for i in range(seats)]
    most = -(-seats // ranks)
    rows, place = [], 0
    for rank in range(ranks):
        count = seats // ranks + (rank < seats % ranks)
        rows += parts[place : place + count] + [torch.tensor([float("nan")])] * (most - count)
        place += count
    assert torch.equal(tree_sum(_in_order(torch.stack(rows), seats, ranks)), tree_sum(parts))
