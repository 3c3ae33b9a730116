"""Optimizers and schedules."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.config import RunConfig
from paceline.config.run import SCHEDULES
from paceline.train.optimize import factor, make_optimizer, set_learning_rate


@given(st.sampled_from(SCHEDULES), st.integers(1, 500), st.data())
def test_a_schedule_peaks_at_one_and_never_leaves_its_range(schedule, steps, data):
    warmup = data.draw(st.integers(0, steps - 1))
    values = [factor(schedule, step, steps, warmup) for step in range(steps)]
    assert max(values) == pytest.approx(1.0)
    assert all(0 < value <= 1 + 1e-12 for value in values)
    assert values[: warmup + 1] == sorted(values[: warmup + 1])
    assert values[warmup:] == sorted(values[warmup:], reverse=True)


def test_known_values():
    assert [factor("constant", s, 10, 0) for s in (0, 9)] == [1.0, 1.0]
    assert [factor("constant", s, 10, 4) for s in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert factor("cosine", 5, 10, 0) == pytest.approx(0.5)
    assert factor("one_cycle", 0, 100, 1_000) == pytest.approx(1 / 25 + 24 / 25 / 1000)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_optimizers_take_the_configuration_and_leave_frozen_parameters(name):
    parameters = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2), requires_grad=False)]
    config = RunConfig(optimizer=name, momentum=0.8, weight_decay=0.01)
    optimizer = make_optimizer(config, parameters, 0.5)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], len(group["params"])) == (0.5, 0.01, 1)
    assert group.get("momentum", group.get("betas", [None])[0]) == 0.8
    set_learning_rate(optimizer, 0.25)
    parameters[0].grad = torch.ones(3)
    optimizer.step()
    assert (parameters[0] < 1).all()


def test_fused_sgd_is_the_textbook_update():
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    config = RunConfig(momentum=0.9, nesterov=True, weight_decay=0.1)
    optimizer = make_optimizer(config, [parameter], 0.1)
    value, velocity = torch.tensor([1.0, -2.0]), torch.zeros(2)
    for gradient in (torch.tensor([0.5, 1.0]), torch.tensor([-1.0, 0.25])):
        parameter.grad = gradient.clone()
        optimizer.step()
        decayed = gradient + 0.1 * value
        velocity = decayed if not velocity.any() else 0.9 * velocity + decayed
        value = value - 0.1 * (decayed + 0.9 * velocity)
        torch.testing.assert_close(parameter.data, value)
