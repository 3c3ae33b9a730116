"""SyncBatchNorm as a module of torch: constructor, state, conversion, modes, copies. One process."""

from __future__ import annotations

import copy
import inspect
import io

import pytest
import torch
from torch import nn

from paceline.comm.collectives import Collective
from paceline.config import RunConfig
from paceline.errors import ConfigError
from paceline.models.cifar_cnn import CifarCnn
from paceline.models.mlp import Mlp
from paceline.nn import SyncBatchNorm, convert_sync_batchnorm
from paceline.strategies import Strategy
from paceline.train.build import over_all_ranks


class Counting(Collective):
    """One rank, which is all of them."""

    def __init__(self) -> None:
        self.rank, self.size, self.calls = 0, 1, 0

    def all_reduce_(self, flat, operation="sum"):
        self.calls += 1
        return flat


def test_the_constructor_is_torchs():
    ours, torchs = (inspect.signature(c).parameters for c in (SyncBatchNorm, nn.SyncBatchNorm))
    assert [(n, p.default) for n, p in ours.items()] == [(n, p.default) for n, p in torchs.items()]


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"bias": False}, {"track_running_stats": False}])
def test_state_goes_both_ways(options):
    x = torch.randn(8, 4)
    for kind in (nn.BatchNorm1d, nn.SyncBatchNorm):
        other = kind(4, **options)
        ours = SyncBatchNorm(4, **options, process_group=Counting())
        ours(x)
        other.load_state_dict(ours.state_dict())
        fresh = SyncBatchNorm(4, **options)
        fresh.load_state_dict(other.state_dict())
        assert list(fresh.state_dict()) == list(other.state_dict())
        assert [p is None for p in (fresh.weight, fresh.bias)] == [
            p is None for p in (other.weight, other.bias)
        ]
        for key, value in ours.state_dict().items():
            assert torch.equal(fresh.state_dict()[key], value)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("track", [True, False])
def test_without_anybody_it_is_batch_norm(momentum, track):
    """As torch's layer in one process: no group, no messages, the same numbers in both modes."""
    options = {"momentum": momentum, "track_running_stats": track}
    ours, torchs = SyncBatchNorm(4, **options), nn.BatchNorm1d(4, **options)
    for number in range(3):
        x = torch.randn(6, 4)
        assert torch.equal(ours(x), torchs(x))
        if number == 1:
            ours.eval(), torchs.eval()
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), torchs.buffers(), strict=True))


@pytest.mark.parametrize("track", [True, False])
def test_evaluation_is_silent(track):
    group = Counting()
    layer = SyncBatchNorm(4, process_group=group, track_running_stats=track).eval()
    x = torch.randn(6, 4, requires_grad=True)
    layer(x).sum().backward()
    assert group.calls == 0
    layer.train()(x).sum().backward()
    assert group.calls == 2


def test_what_needs_no_gradient_sends_none():
    group = Counting()
    layer = SyncBatchNorm(4, process_group=group)
    layer(torch.randn(6, 4)).sum().backward()  # the data itself: gradients of weight and bias alone
    assert group.calls == 1
    assert layer.bias.grad.tolist() == [6.0] * 4
    with torch.no_grad():
        layer(torch.randn(6, 4, requires_grad=True))
    assert group.calls == 2
    frozen = SyncBatchNorm(4, process_group=group).requires_grad_(False)
    x = torch.randn(6, 4, requires_grad=True)
    frozen(x).square().sum().backward()
    assert x.grad is not None and frozen.weight.grad is None


def test_a_layer_behind_it_may_work_in_place():
    layer = nn.Sequential(SyncBatchNorm(4, process_group=Counting()), nn.ReLU(inplace=True))
    x = torch.randn(6, 4, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.isfinite().all()


def test_gradients_against_differences():
    """float64, which torch.autograd.gradcheck needs."""
    layer = SyncBatchNorm(3, process_group=Counting()).double()
    x = torch.randn(5, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))


def test_conversion_keeps_parameters_buffers_and_modes():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, eps=1e-3, momentum=None), nn.Sequential(nn.BatchNorm3d(2, affine=False).eval())
    )  # fmt: skip
    before = dict(model.named_parameters()) | dict(model.named_buffers())
    group = Counting()
    found = SyncBatchNorm.convert_sync_batchnorm(model, group)
    assert found is model
    first, second = model[1], model[2][0]
    assert (first.eps, first.momentum, first.affine, first.training) == (1e-3, None, True, True)
    assert (second.affine, second.training, second.process_group) == (False, False, group)
    after = dict(model.named_parameters()) | dict(model.named_buffers())
    assert list(after) == list(before) and all(after[key] is before[key] for key in after)
    assert convert_sync_batchnorm(nn.BatchNorm1d(3)).process_group is None
    assert isinstance(convert_sync_batchnorm(nn.SyncBatchNorm(3)), SyncBatchNorm)


def test_copies_talk_with_the_same_ranks_and_files_with_the_default():
    group = Counting()
    layer = SyncBatchNorm(4, process_group=group)
    layer(torch.randn(6, 4))
    twin = copy.deepcopy(layer)
    twin(torch.randn(6, 4))
    assert twin.process_group is group and twin._messages is not layer._messages
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.load(file, weights_only=False).process_group is None


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (lambda: SyncBatchNorm(4)(torch.randn(6)), r"takes tensors of \(samples, 4, …\), got \(6,\)"),
        (lambda: SyncBatchNorm(4)(torch.randn(6, 5)), r"got \(6, 5\)"),
        (lambda: SyncBatchNorm(4, process_group="gloo"), "process_group is str; give a torch process group"),
    ],
)
def test_mistakes(case, said):
    with pytest.raises((ValueError, ConfigError), match=said):
        case()


class Apart(Strategy):
    """Ranks that do not wait for each other."""

    lockstep = False

    def __init__(self) -> None:
        self.collective = Counting()

    def step(self) -> None: ...


class Together(Apart):
    lockstep = True


def test_a_run_converts_its_model():
    model = over_all_ranks(CifarCnn((3, 32, 32), 10), Together())
    layers = [layer for layer in model.modules() if isinstance(layer, SyncBatchNorm)]
    assert [(layer.num_features, layer.affine) for layer in layers] == [(128, False)]
    with pytest.raises(ConfigError, match="ranks of Apart do not step together"):
        over_all_ranks(model, Apart())
    with pytest.raises(ConfigError, match="Mlp has no batch norm layer"):
        over_all_ranks(Mlp((1, 8, 8), 10), Together())
    assert not RunConfig().sync_batchnorm
