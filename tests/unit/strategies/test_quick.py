"""The short way through SGD: the same bits as torch's, and torch's own way where anybody could notice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.strategies._quick import quick_step

FORMS = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True},
    {"lr": 0.1, "momentum": 0.5, "dampening": 0.3},
]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))


def train(optimizer_of, quick: bool, between=lambda optimizer, number: None):
    model = net()
    optimizer = optimizer_of(model)
    step = quick_step(optimizer) if quick else optimizer.step
    for number in range(6):
        between(optimizer, number)
        optimizer.zero_grad()
        model(torch.full((2, 5), 0.1 * number)).square().mean().backward()
        step()
    return [p.detach() for p in model.parameters()], optimizer


def counted(monkeypatch) -> list[int]:
    """How often torch's own step runs."""
    calls = []
    own = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self: (calls.append(1), own(self))[1])
    monkeypatch.setattr(torch.optim.SGD.step, "hooked", True, raising=False)
    return calls


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form))
def test_the_same_bits_and_the_same_state_as_torchs(form, monkeypatch):
    def of(model):
        groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.02}]
        return torch.optim.SGD(groups, **form, fused=True)

    wanted, theirs = train(of, quick=False)
    calls = counted(monkeypatch)
    found, ours = train(of, quick=True)
    assert len(calls) == 1  # the first
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    for a, b in zip(ours.state_dict()["state"].values(), theirs.state_dict()["state"].values(), strict=True):
        assert torch.equal(a["momentum_buffer"], b["momentum_buffer"])


def hooked(optimizer, number):
    if number == 2:
        optimizer.register_step_pre_hook(lambda *_: None)


def scheduled(optimizer, number):
    if number == 2:
        torch.optim.lr_scheduler.StepLR(optimizer, 1)


def grown(optimizer, number):
    if number == 2:
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})


@pytest.mark.parametrize(("change", "own"), [(hooked, 5), (scheduled, 5), (grown, 2)])
def test_what_could_notice_gets_torchs_own_step(change, own, monkeypatch):
    def of(model):
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)

    wanted, _ = train(of, quick=False, between=change)
    calls = counted(monkeypatch)
    found, _ = train(of, quick=True, between=change)
    assert len(calls) == own
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("kind", ["unfused", "adam", "mixed"])
def test_other_optimizers_are_left_alone(kind, monkeypatch):
    def of(model):
        if kind == "adam":
            return torch.optim.AdamW(model.parameters(), 0.1, fused=True)
        if kind == "mixed":
            wide = nn.Parameter(torch.ones(3, dtype=torch.float64))
            return torch.optim.SGD([*model.parameters(), wide], 0.1, fused=True)
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    wanted, _ = train(of, quick=False)
    calls = counted(monkeypatch)
    found, _ = train(of, quick=True)
    assert len(calls) == (0 if kind == "adam" else 6)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_state_that_is_loaded_is_used(monkeypatch):
    def of(model):
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)

    def loaded(optimizer, number):
        if number == 3:
            state = optimizer.state_dict()
            for kept in state["state"].values():
                kept["momentum_buffer"] = torch.full_like(kept["momentum_buffer"], 0.5)
            state["param_groups"][0]["lr"] = 0.01
            optimizer.load_state_dict(state)

    wanted, _ = train(of, quick=False, between=loaded)
    found, _ = train(of, quick=True, between=loaded)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
