"""The arithmetic of buckets, and gradients as views of them, without any ranks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paceline.strategies._buckets import GradientBuckets, packed
from paceline.strategies._messages import ROUNDED, allocate_private, message_for

sizes = st.lists(st.integers(1, 100), max_size=40)


def buckets_of(model: nn.Module, limit: int = 2**20) -> GradientBuckets:
    return GradientBuckets(model.parameters(), limit, allocate_private)


@given(sizes, st.integers(0, 200), st.data())
def test_every_parameter_is_in_one_group_of_its_kind_that_closes_once_it_is_full(sizes, limit, data):
    kinds = data.draw(st.lists(st.sampled_from("ab"), min_size=len(sizes), max_size=len(sizes)))
    groups = packed(sizes, kinds, limit)
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    for group in groups:
        assert group == sorted(group) and len({kinds[i] for i in group}) == 1
        assert sum(sizes[i] for i in group[:-1]) < limit or len(group) == 1
    for kind in set(kinds):  # only the last of a kind may be left short
        mine = [group for group in groups if kinds[group[0]] == kind]
        assert all(sum(sizes[i] for i in group) >= limit for group in mine[:-1])
    assert [group[-1] for group in groups] == sorted(group[-1] for group in groups)


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=3), min_size=1, max_size=8), st.integers(1, 300)
)
def test_views_lie_one_behind_the_other_and_never_overlap(shapes, limit):
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    buckets = GradientBuckets(parameters, limit, allocate_private)
    for number, parameter in enumerate(parameters):
        parameter.grad.fill_(number + 1)
    found = torch.cat(buckets.flats)
    for number, parameter in enumerate(parameters):
        assert (found == number + 1).sum() == parameter.numel()
        assert (parameter.grad == number + 1).all()
    buckets.zero_()
    assert not any(parameter.grad.any() for parameter in parameters)


def test_backward_writes_into_the_bucket_and_frozen_parameters_are_left_out():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].bias.requires_grad_(False)
    buckets = buckets_of(model)
    model(torch.ones(1, 3)).sum().backward()
    assert sum(flat.numel() for flat in buckets.flats) == 3 * 4 + 4 * 2 + 2
    assert model[0].bias.grad is None
    assert torch.equal(buckets.flats[0][:2], model[1].bias.grad) and model[1].bias.grad.any()


def test_parameters_of_different_types_have_different_buckets():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double(), nn.Linear(2, 2))
    flats = buckets_of(model).flats
    assert sorted(str(flat.dtype) for flat in flats) == ["torch.float32", "torch.float64"]


def test_a_gradient_has_the_layout_of_its_parameter():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    plain = nn.Conv2d(3, 4, 3)
    plain.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, 8, 8)
    buckets_of(model)
    for net in (model, plain):
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, fused=True)
        net(images).square().sum().backward()
        optimizer.step()
    assert model.weight.grad.stride() == model.weight.stride() != plain.weight.stride()
    torch.testing.assert_close(model.weight.contiguous(), plain.weight, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("how", ["none", "other", "sparse", "differentiable"])
def test_a_gradient_that_is_no_view_any_more_is_copied_in_and_made_one_again(how):
    model = nn.Embedding(5, 2, sparse=how == "sparse")
    buckets = buckets_of(model)
    view = model.weight.grad
    view.fill_(7.0)
    model.weight.grad = None
    wanted = torch.zeros(5, 2)
    if how != "none":
        wanted[1] = 2.0
        model(torch.tensor([1, 1])).sum().backward(create_graph=how == "differentiable")
        assert model.weight.grad is not view
    buckets.restore()
    assert model.weight.grad is view
    assert torch.equal(buckets.flats[0].view(5, 2), wanted)


@pytest.mark.parametrize("longest", [0.5, 5.0, 1e6])
def test_clipping_is_torchs_own(longest):
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double()) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    buckets = buckets_of(models[0])
    for model in models:
        (10 * model[1](model[0](torch.ones(2, 3)).double()).square().sum()).backward()
    buckets.clip_(longest)
    torch.nn.utils.clip_grad_norm_(models[1].parameters(), longest)
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-7)


def test_clipping_does_not_hide_what_is_not_a_number():
    model = nn.Linear(2, 2)
    buckets = buckets_of(model)
    model.weight.grad[0, 0] = float("nan")
    buckets.clip_(1.0)
    assert buckets.flats[0].isnan().all()


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
@given(values=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20))
def test_what_rounding_cuts_off_is_sent_later(kind, values):
    """The sum of all messages and what is still held back is the sum of all gradients."""
    model = nn.Linear(len(values), 1, bias=False)
    bucket = buckets_of(model).buckets[0]
    message = message_for(bucket, ROUNDED[kind], allocate_private, ranks=2)
    sent = torch.zeros(len(values), dtype=torch.float64)
    for _ in range(5):
        bucket.flat.copy_(torch.tensor(values))
        short = message.pack()
        assert short.nbytes * 2 == bucket.flat.nbytes
        sent += short.double()
        message.unpack()
        assert torch.equal(bucket.flat, short.float())
    wanted = 5 * torch.tensor(values, dtype=torch.float32).double()
    torch.testing.assert_close(sent + message.residual.double(), wanted, rtol=1e-6, atol=1e-3)


def test_a_half_message_stays_finite_when_summed():
    bucket = buckets_of(nn.Linear(1, 1, bias=False)).buckets[0]
    message = message_for(bucket, torch.float16, allocate_private, ranks=4)
    bucket.flat.fill_(1e6)
    assert torch.isfinite(message.pack() * 4).all()
    assert message.residual.item() > 9e5
