"""Every strategy in the registry, by existing. Those whose ranks step together must equal one process."""

from __future__ import annotations

import pytest
import torch

from cases.strategies import plain
from paceline.registry import STRATEGIES

NAMES = STRATEGIES.names()
LOCKSTEP = [name for name in NAMES if STRATEGIES.load(name).lockstep]
# Full steps, one that does not divide by 2 or 3, and short ones that leave seats with nothing.
COUNTS = [12, 12, 11, 12, 2, 1]


def sizes(name: str, wanted: list[int]) -> list[int]:
    kind = STRATEGIES.load(name)
    return [size for size in wanted if kind.least_ranks <= size <= (kind.most_ranks or size)]


CASES = [(name, size) for name in NAMES for size in sizes(name, [1, 2, 3])]
LOCKSTEP_CASES = [(name, size) for name in LOCKSTEP for size in sizes(name, [1, 2, 3, 4])]
# What makes a strategy of one rank do nothing of its own.
PLAIN = {"diloco": {"outer_lr": 1.0, "outer_momentum": 0.0}}
# Whose result does not depend on who comes first.
REPEATABLE = [case for case in CASES if case[0] != "hogwild" or case[1] == 1]


@pytest.mark.parametrize(("name", "size"), LOCKSTEP_CASES)
def test_p_ranks_make_the_updates_of_one_process(zygote, name, size):
    wanted, losses = plain(COUNTS)
    ranks = zygote.run("cases.strategies:train", size, name=name, counts=COUNTS)
    for got, want in zip(ranks[0]["parameters"], wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    summed = [sum(rank["losses"][step] for rank in ranks) for step in range(len(COUNTS))]
    assert summed == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_ranks_agree_after_synchronize(zygote, name, size):
    ranks = zygote.run(
        "cases.strategies:train", size, name=name, counts=[12] * 5, batch_norm=True, different_starts=True
    )
    for kind in ("parameters", "buffers"):
        for other in ranks[1:]:
            assert all(torch.equal(a, b) for a, b in zip(ranks[0][kind], other[kind], strict=True)), kind


@pytest.mark.parametrize(("name", "size"), LOCKSTEP_CASES)
@pytest.mark.parametrize("micro_batches", [2, 3])
def test_accumulation_changes_nothing_and_sends_nothing(zygote, name, size, micro_batches):
    whole = zygote.run("cases.strategies:train", size, name=name, counts=COUNTS)
    pieces = zygote.run("cases.strategies:train", size, name=name, counts=COUNTS, micro_batches=micro_batches)
    for got, want in zip(pieces[0]["parameters"], whole[0]["parameters"], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    assert pieces[0]["messages"] == whole[0]["messages"]


@pytest.mark.parametrize("name", ["ddp"])
@pytest.mark.parametrize(("bucket_mb", "messages"), [(25.0, 1), (1e-5, 4)])
def test_one_message_a_bucket_and_one_to_align_the_replicas(zygote, name, bucket_mb, messages):
    ranks = zygote.run(
        "cases.strategies:train", 2, name=name, counts=[12] * 3, options={"bucket_mb": bucket_mb}
    )
    for rank in ranks:
        assert rank["messages"] == [messages] * 3
        assert rank["attached"] == 1


@pytest.mark.parametrize("own_loop", [False, True], ids=["step", "own_loop"])
@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ["ddp", "one_copy"])
def test_accumulation_of_k_equals_one_batch_k_times_as_large_with_exactly_1_collective_a_window(
    zygote, name, k, own_loop
):
    wanted, _ = plain([4 * k * 2] * 4)
    once = {"ddp": ["all_reduce"], "one_copy": ["reduce_scatter", "barrier"]}[name]
    for parameters, calls in zygote.run(
        "cases.strategies:accumulated", 2, name=name, k=k, windows=4, own_loop=own_loop
    ):
        assert calls == [once] * 4  # a barrier carries nothing
        for got, want in zip(parameters, wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_torch_ddp_tells_how_long_backward_stood_still(zygote):
    for rank in zygote.run("cases.strategies:train", 2, name="torch_ddp", counts=[12] * 3):
        assert rank["exposed"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_one_training_rank_is_plain_sgd(zygote, name):
    wanted, losses = plain(COUNTS)
    ranks = zygote.run(
        "cases.strategies:train",
        STRATEGIES.load(name).least_ranks,
        name=name,
        counts=COUNTS,
        options=PLAIN.get(name),
    )
    for got, want in zip(ranks[0]["parameters"], wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert ranks[0]["losses"] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize(("name", "size"), REPEATABLE)
def test_resumed_is_uninterrupted(zygote, name, size):
    """Agreeing in the middle is part of both: strategies are saved where the replicas are equal."""
    given = {"name": name, "counts": [12, 12, 11, 12, 12, 12], "pause_at": 3}
    through = zygote.run("cases.strategies:train", size, **given)
    resumed = zygote.run("cases.strategies:train", size, **given, resume=True)
    for mine, other in zip(through, resumed, strict=True):
        for a, b in zip(mine["parameters"], other["parameters"], strict=True):
            # torch's DDP lays its buckets out anew after its first step, and sums then round differently
            torch.testing.assert_close(
                a, b, rtol=1e-5 * (name == "torch_ddp"), atol=1e-7 * (name == "torch_ddp")
            )
