"""`paceline bench step`: what is asked for, the arithmetic, and one small measurement with real ranks."""

from __future__ import annotations

import json

import pytest

from paceline.bench import _step_rows, step
from paceline.bench._step_cases import parse, parse_all, reference_of, shape_of
from paceline.errors import ConfigError


def test_a_side_is_a_strategy_with_options_a_collective_and_a_form_of_sgd():
    case = parse("ddp[compression=bf16,bucket_mb=1]@native:stock")
    assert (case.strategy, case.collective, case.fused) == ("ddp", "native", False)
    assert case.options == {"compression": "bf16", "bucket_mb": 1}
    assert [(c.collective, c.fused) for c in parse_all(["torch_ddp", "torch_ddp:fused", "one_copy"])] == [
        ("native", False), ("native", True), ("shm", True),
    ]  # fmt: skip
    assert reference_of(["ddp", "torch_ddp"]) == "torch_ddp" and reference_of(["torch_ddp:fused"]) is None
    assert shape_of("mnist_cnn") == (1, 28, 28) and shape_of("resnet18") == (3, 32, 32)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("dpd", "did you mean"),
        ("ddp+shm", "write NAME"),
        ("ddp[colour=red]", "no option 'colour'"),
        ("torch_ddp@shm", "works over native only"),
        ("ddp@shn", "no collective 'shn'"),
    ],
)
def test_a_mistake_in_a_side_is_one_line(label, said):
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")) as caught:
        parse(label)
    assert "\n" not in str(caught.value)


def test_a_side_named_twice_and_impossible_numbers_are_refused():
    with pytest.raises(ConfigError, match="twice"):
        parse_all(["ddp", "ddp"])
    for wrong in ({"batch": 1}, {"ranks": ()}, {"ranks": (0,)}, {"seconds": 0.0}, {"memory_ranks": (99,)}):
        with pytest.raises(ConfigError):
            step.Wanted(**wrong)


def test_outside_is_the_slowest_ranks_step_without_the_slowest_ranks_computation():
    # start, forward, backward, end of two ranks in one round; the second computes 3 s longer
    compute = [[[10.0, 11, 13, 13]], [[10.5, 12, 16.5, 16.5]]]  # 16.5 - 10.5 = 6
    side = [[[20.0, 21, 24, 29]], [[21.0, 22, 27, 28]]]  # 29 - 21 = 8
    assert _step_rows.lasting(compute, 2) == [6.0]
    assert _step_rows.lasting(side, 3) == [8.0]
    ranks = [
        {"samples": {_step_rows.COMPUTE: c * 9, "ddp": s * 9}, "sent": {"ddp": [1, 40]}}
        for c, s in zip(compute, side, strict=True)
    ]
    (row,) = _step_rows.rows_of(ranks, None)
    assert (row["outside_us"], row["compute_us"], row["step_us"]) == (2e6, 6e6, 8e6)
    assert (row["forward_us"], row["backward_us"], row["update_us"]) == (1e6, 4e6, 3e6)
    assert (row["collectives_a_step"], row["bytes_a_step"], row["times_reference"]) == (1, 40, None)


def test_how_many_times_less_is_a_quotient_of_medians_with_an_interval():
    value, low, high = _step_rows.times([9.0, 10.0, 11.0] * 20, [1.9, 2.0, 2.1] * 20)
    assert value == pytest.approx(5.0) and 4 < low <= 5 <= high < 6
    assert _step_rows.times([1.0, 1.0], [-1.0, -1.0]) == (None, None, None)


def test_memory_that_ranks_share_counts_once_a_node():
    ranks = [
        {
            "uss": 10, "pss": 20, "gradients": [[f"own {rank}", 7]],
            "parameters": [["file 0", 100], ["file 64", 50], [f"own {rank}", 5]],
            "optimizer": [[f"own {rank}", 30]],
        }
        for rank in range(2)
    ]  # fmt: skip
    row = _step_rows.with_memory({"ranks": 2}, ranks)
    assert row["parameters_bytes_a_rank"] == 155 and row["parameters_bytes_a_node"] == 160
    assert row["shared_parameters_bytes"] == 150 and row["state_bytes_a_node"] == 220
    assert row["pss_bytes_a_node"] == 40 and row["gradients_bytes_a_node"] == 14


@pytest.mark.slow
def test_a_measurement_with_real_ranks(zygote, tmp_path):
    """One physical copy of the parameters for any number of ranks, p copies for ddp; counted and told."""
    done = zygote.paceline(
        "bench", "step", "--models", "mnist_cnn", "--strategies", "torch_ddp,ddp,one_copy", "--batch", 2,
        "--seconds", 0.2, "--memory-ranks", "1,2", "--json", "rows.json", "--out", "page", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = {(r["strategy"], r["ranks"]): r for r in json.loads((tmp_path / "rows.json").read_text())}
    parameters = 4 * 28_490
    for ranks in (1, 2):
        one = rows["one_copy", ranks]
        assert one["shared_parameters_bytes"] == (parameters if ranks > 1 else 0)
        assert one["parameters_bytes_a_node"] == parameters
        assert parameters <= one["optimizer_bytes_a_node"] <= parameters + 4 * 64 * ranks
        assert rows["ddp", ranks]["state_bytes_a_node"] == 2 * parameters * ranks
        assert rows["torch_ddp", ranks]["state_bytes_a_node"] == 2 * parameters * ranks
    assert rows["ddp", 2]["collectives_a_step"] == 1 and rows["ddp", 2]["bytes_a_step"] == parameters
    assert rows["torch_ddp", 2]["outside_us"] > 0
    assert {path.name for path in (tmp_path / "page" / "figures").iterdir()} == {
        "step-time-mnist_cnn-p2.svg", "step-memory-mnist_cnn.svg",
    }  # fmt: skip
