"""ddp in real ranks: what it computes, what it sends and when, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from cases import ddp as cases
from paceline.registry import STRATEGIES

EARLY = {"overlap": "on", "bucket_mb": 1e-5}


def close(found, wanted, tolerance: float = 1e-6) -> None:
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def same(ranks: list[dict]) -> None:
    for other in ranks[1:]:
        assert all(
            torch.equal(a, b) for a, b in zip(ranks[0]["parameters"], other["parameters"], strict=True)
        )


@pytest.mark.parametrize("options", [{}, EARLY], ids=["after", "early"])
@pytest.mark.parametrize("micro_batches", [1, 2, 4, 8])
def test_accumulation_is_one_larger_batch_and_one_collective_a_bucket(zygote, micro_batches, options):
    ranks = zygote.run("cases.ddp:windows", 2, micro_batches=micro_batches, options=options)
    same(ranks)
    close(ranks[0]["parameters"], cases.plain([48, 48, 48, 48, 7])[0])
    for rank in ranks:
        assert rank["calls"] == [4 if options else 1] * 5


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_overlap_gives_the_same_bits_and_uses_its_own_thread(zygote, micro_batches):
    found = {
        overlap: zygote.run(
            "cases.ddp:windows",
            3,
            micro_batches=micro_batches,
            options={"overlap": overlap, "bucket_mb": 1e-5},
        )
        for overlap in ("off", "on", "auto")
    }
    for overlap in ("on", "auto"):
        same([found["off"][0], *found[overlap]])
    assert all(rank["threads"] == {"paceline-collective"} for rank in found["on"])
    assert all(rank["threads"] == {"MainThread"} for rank in [*found["off"], *found["auto"]])


@pytest.mark.parametrize("drop", [False, True], ids=["kept", "set_to_none"])
@pytest.mark.parametrize("options", [{}, EARLY], ids=["after", "early"])
def test_unused_shared_frozen_and_parameters_of_other_types(zygote, options, drop):
    ranks = zygote.run("cases.ddp:branches", 3, options=options, drop=drop)
    same(ranks)
    close(ranks[0]["parameters"], cases.branches_alone(3))


@pytest.mark.parametrize(
    "shares", [[[5, 5, 5], [5]], [[3], [4, 2, 7, 1]], [[], [4, 4]], [[], []], [[2, 6], [7, 1]]]
)
def test_a_rank_that_runs_out_of_data_neither_hangs_nor_biases_the_others(zygote, shares):
    ranks = zygote.run("cases.ddp:uneven", 2, shares=shares, options=EARLY)
    same(ranks)
    close(ranks[0]["parameters"], cases.uneven_alone(shares) if any(shares) else cases.plain([])[0])
    assert [rank["done"] for rank in ranks] == [len(share) for share in shares]


@pytest.mark.parametrize("options", [{}, EARLY], ids=["after", "early"])
def test_clipping_uses_the_norm_of_the_mean(zygote, options):
    clipped = zygote.run("cases.ddp:windows", 2, micro_batches=2, options=options, clip=0.3)
    alone = zygote.run("cases.ddp:windows", 1, micro_batches=1, options={}, clip=0.3)
    same(clipped)
    close(clipped[0]["parameters"], alone[0]["parameters"])
    with pytest.raises(AssertionError):
        close(clipped[0]["parameters"], cases.plain([48, 48, 48, 48, 7])[0])


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("choice", ["broadcast", "average", "own"])
def test_buffers_by_each_choice(zygote, choice, every_step):
    options = {"buffers": choice, "buffers_every_step": every_step}
    ranks = zygote.run("cases.ddp:buffers", 3, options=options)
    own = [rank["before"] for rank in ranks]
    for rank in ranks:
        for place, after in enumerate(rank["after"]):
            mine = rank["before"][place]
            stacked = torch.stack([each[place] for each in own])
            mean = stacked.double().mean(0) if after.is_floating_point() else own[0][place].double()
            wanted = {"broadcast": own[0][place].double(), "average": mean, "own": mine.double()}[choice]
            torch.testing.assert_close(after.double(), wanted, rtol=1e-6, atol=1e-6)
    agreed = torch.equal(own[0][0], own[1][0])
    assert agreed == (every_step and choice != "own")


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["bf16", "fp16"])
def test_error_feedback_converges_where_plain_rounding_does_not(zygote, compression):
    exact, fed, rounded = (
        max(zygote.run("cases.ddp:opposed", 2, compression=kind, feedback=feedback, steps=500))
        for kind, feedback in [("none", True), (compression, True), (compression, False)]
    )
    assert exact < 1e-3
    assert fed < 0.08 < 0.2 < rounded


def test_a_resumed_run_goes_on_with_what_rounding_held_back(zygote):
    for whole, cut in zygote.run("cases.ddp:resumed", 2):
        assert all(torch.equal(a, b) for a, b in zip(whole, cut, strict=True))


def test_a_compressed_message_is_half_as_long(zygote):
    (rank,) = zygote.run("cases.ddp:windows", 1, micro_batches=1, options={"compression": "bf16"})
    elements = sum(p.numel() for p in rank["parameters"])
    assert rank["all"] == [(elements, "torch.bfloat16")] * 5


def test_misuse_is_one_line(zygote):
    (lines,) = zygote.run("cases.ddp:refusals", 1)
    for line, word in zip(
        lines,
        ["unfrozen", "not the model's", "accumulating", "go together", "go together", "compression", "'off'"],
        strict=True,
    ):
        assert word in line and "\n" not in line


def test_its_options_are_the_documented_ones():
    options = STRATEGIES.load("ddp").__init__.__kwdefaults__
    assert set(options) == {"bucket_mb", "overlap", "buffers", "buffers_every_step", "compression"}
