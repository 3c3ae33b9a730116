"""The arithmetic alone, without processes: any batch, dealt in any way, in C and in torch's operations."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.nn import _arithmetic, _kernels

BOTH = [pytest.param(True, id="C"), pytest.param(False, id="torch")]
SAMPLES = st.lists(st.integers(0, 7), min_size=1, max_size=4).filter(lambda counts: sum(counts) > 1)
PLACES = st.sampled_from([(), (1,), (5,), (40,), (3, 4), (2, 3, 2)])


def forward(x, weight, bias, parts, in_c):
    """Each part as if it were a rank's; the messages are summed here."""
    channels = x.shape[1]
    pieces = [_kernels.dense(piece) for piece in x.split(parts)]
    messages = [torch.full((2 * channels + 1,), float("nan"), dtype=torch.float64) for _ in pieces]
    for (piece, shape), message in zip(pieces, messages, strict=True):
        if in_c:
            _kernels.statistics(piece, message, shape)
        else:
            _arithmetic.statistics(piece, message)
    total = torch.stack(messages).sum(0)
    running = torch.zeros(channels), torch.ones(channels)
    found = []
    for piece, shape in pieces:
        settings = (weight, bias, tuple(r.clone() for r in running), 1e-5, 0.1)
        if in_c:
            found.append((*_kernels.normalise(piece, total, shape, *settings), *settings[2]))
        else:
            found.append((*_arithmetic.normalise(piece, total, float(total[-1]), *settings), *settings[2]))
    return pieces, found, float(total[-1])


def backward(dy, pieces, found, count, weight, parts, in_c):
    channels = dy.shape[1]
    messages, own, gradients = [], [], []
    for (x, shape), (_, kept, *_), mine in zip(pieces, found, dy.split(parts), strict=True):
        message = torch.full((2 * channels + 1,), float("nan"), dtype=torch.float64)
        if in_c:
            own.append(_kernels.sums(_kernels.like(mine, x), x, kept, message, shape, (True, True)))
        else:
            own.append(_arithmetic.sums(mine, x, kept, message, weight, (True, True)))
        messages.append(message)
    total = torch.stack(messages).sum(0)
    for (x, shape), (_, kept, *_), mine in zip(pieces, found, dy.split(parts), strict=True):
        if in_c:
            mine = _kernels.like(mine, x)
            gradients.append(_kernels.gradient(mine, x, total, kept, shape, weight, count))
        else:
            gradients.append(_arithmetic.gradient(mine, x, total, kept, weight, count))
    return torch.cat(gradients), [sum(o[i] for o in own) for i in (0, 1)]


@pytest.mark.parametrize("in_c", BOTH)
@settings(max_examples=60, deadline=None)
@given(SAMPLES, PLACES, st.sampled_from([1, 3, 64, 67]), st.booleans(), st.integers(0, 2**31), st.booleans())
def test_parts_make_the_whole(in_c, parts, places, channels, affine, seed, last):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(parts), channels, *places, generator=generator) * 3 + 5
    dy = torch.randn(x.shape, generator=generator)
    if last and len(places) == 2:
        x = x.contiguous(memory_format=torch.channels_last)
    elif last:
        x = x.transpose(0, -1).contiguous().transpose(0, -1)  # with gaps between neighbours
    weight, bias = (torch.rand(channels, generator=generator) + 0.5 if affine else None for _ in range(2))
    exact = [None if t is None else t.double().requires_grad_() for t in (x, weight, bias)]
    running = torch.zeros(channels).double(), torch.ones(channels).double()
    y = torch.nn.functional.batch_norm(exact[0], *running, exact[1], exact[2], training=True)
    y.backward(dy.double())

    pieces, found, count = forward(x, weight, bias, list(parts), in_c)
    dx, own = backward(dy, pieces, found, count, weight, list(parts), in_c)
    spread = 1 / exact[0].detach().transpose(0, 1).reshape(channels, -1).std(1, correction=0).min().item()
    near = {"rtol": 1e-5, "atol": 1e-5 * max(1.0, spread**2)}
    torch.testing.assert_close(torch.cat([f[0] for f in found]).double(), y, **near)
    torch.testing.assert_close(dx.double(), exact[0].grad, **near)
    for mean, variance in (f[2:] for f in found):
        torch.testing.assert_close(mean.double(), running[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(variance.double(), running[1], rtol=1e-6, atol=1e-6)
    for mine, whole in zip(own, exact[1:], strict=True):
        if affine:
            torch.testing.assert_close(mine.double(), whole.grad, rtol=1e-4, atol=1e-4 * max(1.0, spread))


@pytest.mark.parametrize("in_c", BOTH)
@settings(max_examples=40, deadline=None)
@given(st.floats(-1e6, 1e6, width=32), st.integers(2, 30))
def test_what_does_not_vary_becomes_zero(in_c, value, rows):
    """Σx² - (Σx)²/n is nothing but rounding there, of either sign; its root must not be taken."""
    x = torch.full((rows, 3), value)
    _, found, _ = forward(x, None, None, [rows], in_c)
    assert found[0][0].abs().max() == 0
    assert found[0][3].isfinite().all()


@pytest.mark.parametrize("in_c", BOTH)
def test_what_is_not_a_number_stays_visible(in_c):
    x = torch.randn(8, 3)
    x[2, 1] = float("nan")
    _, found, _ = forward(x, None, None, [8], in_c)
    assert found[0][0].isnan().any(0).tolist() == [False, True, False]
    assert found[0][3].isnan().tolist() == [False, True, False]


@settings(max_examples=40, deadline=None)
@given(SAMPLES, st.integers(0, 2**31))
def test_both_ways_give_the_same_running_statistics_to_the_bit_from_one_message(parts, seed):
    """Ranks may compute in different ways (an empty share, another memory order): the replicas must not drift."""
    x = torch.randn(sum(parts), 5, generator=torch.Generator().manual_seed(seed)) * 10 + 100
    message = torch.zeros(11, dtype=torch.float64)
    _kernels.statistics(x, message, _kernels.dense(x)[1])
    by_c, by_torch = ((torch.randn(5).copy_(torch.arange(5) / 7), torch.ones(5) / 3) for _ in range(2))
    _kernels.normalise(x, message, _kernels.dense(x)[1], None, None, by_c, 1e-5, 0.3)
    _arithmetic.normalise(x, message, float(message[-1]), None, None, by_torch, 1e-5, 0.3)
    assert all(torch.equal(a, b) for a, b in zip(by_c, by_torch, strict=True))


def test_the_extension_takes_what_it_can(monkeypatch):
    x = torch.randn(4, 3)
    assert _kernels.takes(x, None, torch.ones(3))
    assert not _kernels.takes(x.double())
    assert not _kernels.takes(x, torch.ones(3).half())
    assert not _kernels.takes(x, torch.ones(6)[::2])
    large = torch.empty(_kernels.SMALL + 1, 1)
    assert _kernels.takes(large)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert not _kernels.takes(large)
    assert _kernels.takes(x)
    monkeypatch.setattr(_kernels, "_core", None)
    assert not _kernels.takes(x) and not _kernels.available()


def test_a_count_that_is_not_read_gives_the_same():
    """As on a GPU, where reading a number waits for all that was computed before."""
    x, dy = torch.randn(2, 9, 4)
    message = torch.zeros(9, dtype=torch.float64)
    _arithmetic.statistics(x, message)
    found = []
    for count in (9.0, message[-1].clone()):
        running = torch.zeros(4), torch.ones(4)
        y, kept = _arithmetic.normalise(x, message, count, None, None, running, 1e-5, 0.1)
        sums = torch.zeros(9, dtype=torch.float64)
        _arithmetic.sums(dy, x, kept, sums, None, (False, False))
        found.append([y, *running, _arithmetic.gradient(dy, x, sums, kept, None, count)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
