"""SyncBatchNorm on real ranks: what BatchNorm computes on the whole batch, with one message a pass."""

from __future__ import annotations

import itertools

import pytest
import torch

from cases.sync_batchnorm import alone
from paceline.nn import _kernels

GRID = [{"shape": [rows, features]} for features in (128, 256, 512, 1024) for rows in (32, 64)]
PLAIN = {"affine": False}
SHAPES = [
    {"shape": [16, 5], "layer": PLAIN},
    {"shape": [13, 5], "layer": {"momentum": None}},
    {"shape": [16, 5], "layer": {"track_running_stats": False}},
    {"shape": [16, 70], "layer": {"momentum": 0.7, "eps": 1e-2}},
    {"shape": [16, 5, 9]},
    {"shape": [13, 6, 5, 7]},
    {"shape": [13, 6, 5, 7], "channels_last": True},
    {"shape": [9, 4, 3, 2, 5], "layer": PLAIN},
    {"shape": [9, 4, 3, 2, 5], "channels_last": True},
    {"shape": [16, 66], "dtype": "float64"},
]
BOTH = [case | {"in_c": in_c} for case in [*GRID, *SHAPES] for in_c in (True, False)]


def shares(rank_counts: list[int], **more: object) -> dict[str, object]:
    return {"shape": [sum(rank_counts), 67], "shares": rank_counts, **more}


def check(ranks: list[list[dict]], messages: int | None = 1, tolerance: float = 1e-5) -> None:
    """Near to one process on every rank, the same bits in the running statistics, one message a pass."""
    for number, of_case in enumerate(zip(*ranks, strict=True)):
        for found in of_case:
            apart = found["apart"]
            assert found["finite"], number
            for name in ("y", "dx", "dw", "running"):
                assert apart[name] <= tolerance, (number, name, apart)
            if messages is not None:
                assert (apart["forward"], apart["backward"]) == (messages, messages)
            for name, value in found["state"].items():
                assert torch.equal(value, of_case[0]["state"][name]), (number, name)


def test_the_extension_is_built():
    """Here, where the tests run, there is a compiler; without it half of these would test one thing twice."""
    assert _kernels.available()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_it_is_batch_norm_on_the_whole_batch(zygote, size):
    cases = BOTH if size in (1, 4) else [case for case in BOTH if case["shape"][1] < 512]
    check(zygote.run("cases.sync_batchnorm:passes", size, over="shm", cases=cases))


@pytest.mark.parametrize("over", ["native", "ring", "default group", "process group"])
def test_over_anything_that_sums(zygote, over):
    counted = 1 if over in ("native", "ring") else None
    check(zygote.run("cases.sync_batchnorm:passes", 2, over=over, cases=BOTH[-8:]), messages=counted and 1)


def test_uneven_and_empty_shares(zygote):
    dealt = [[5, 1, 3], [0, 7, 2], [0, 0, 4], [3, 0, 2], [0, 9, 0]]
    cases = [shares(counts, in_c=in_c) for counts in dealt for in_c in (True, False)]
    cases += [{"shape": [4, 3, 5, 2], "shares": [0, 3, 1], "channels_last": last} for last in (True, False)]
    check(zygote.run("cases.sync_batchnorm:passes", 3, over="shm", cases=cases))


def test_a_mean_of_ten_thousand_deviations(zygote):
    """Against float64; torch's own BatchNorm in float32 is 20 times as far from it."""
    cases = [
        {"shape": shape, "mean": 1e4, "in_c": in_c, "layer": {"track_running_stats": False}}
        for shape in ([64, 100], [32, 6, 9, 9])
        for in_c in (True, False)
    ]
    check(zygote.run("cases.sync_batchnorm:passes", 3, over="native", cases=cases), tolerance=1e-4)
    torch.manual_seed(0)
    x = torch.randn(64, 100) + 1e4
    plain = torch.nn.functional.batch_norm(x, None, None, training=True)
    assert (plain - torch.nn.functional.batch_norm(x.double(), None, None, training=True)).abs().max() > 2e-4


@pytest.mark.parametrize(("dtype", "tolerance"), [("bf16", 2**-7), ("half", 2**-10)])
def test_halves_are_computed_in_float32(zygote, dtype, tolerance):
    """The output is rounded once: at most half a step of its type away, which up to 4 is the tolerance."""
    cases = [{"shape": [24, 33], "dtype": dtype, "layer": PLAIN}, {"shape": [24, 3, 4, 4], "dtype": dtype}]
    cases[1]["layer"] = {"eps": 1.0}
    ranks = zygote.run("cases.sync_batchnorm:passes", 2, over="native", cases=cases)
    for found in itertools.chain(*ranks):
        assert found["apart"]["running"] <= 1e-6  # of the same rounded inputs
        assert found["apart"]["y"] <= 2 * tolerance
        assert found["apart"]["dx"] <= 2 * tolerance


@pytest.mark.parametrize(
    ("name", "over", "options"),
    [
        ("ddp", "shm", {}),
        ("ddp", "native", {"overlap": "on", "bucket_mb": 1e-5}),
        ("one_copy", "shm", {}),
        ("torch_ddp", "native", {}),
    ],
)
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_model_under_a_strategy(zygote, name, over, options, micro_batches):
    counts = [12, 12, 11, 8, 12]  # 8: the last rank has nothing in its third micro-batch
    wanted = alone(counts, 3, micro_batches)
    ranks = zygote.run(
        "cases.sync_batchnorm:train", 3, name=name, over=over, counts=counts, micro_batches=micro_batches,
        options=options,
    )  # fmt: skip
    for rank in ranks:
        for key, value in wanted.items():
            torch.testing.assert_close(rank["state"][key], value, rtol=1e-4, atol=2e-5)
        assert torch.equal(rank["outputs"], ranks[0]["outputs"])
        assert rank["evaluation"] == 0
        two_layers = 2 * 2 * micro_batches
        assert len(set(rank["messages"])) == 1 and rank["messages"][0] >= two_layers
        if (name, options) == ("ddp", {}):
            assert rank["messages"][0] == two_layers + 1


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("one", "ValueError: one value per channel over all ranks has no variance"),
        ("twice", "PacelineError: SyncBatchNorm has no second derivative"),
    ],
)
def test_what_cannot_be_is_said_on_every_rank(zygote, case, said):
    for line in zygote.run("cases.sync_batchnorm:refused", 2, case=case):
        assert line.startswith(said)


def test_no_samples_anywhere(zygote):
    assert zygote.run("cases.sync_batchnorm:nothing_at_all", 2) == [([0, 3], True, [1.0, 1.0, 1.0])] * 2
