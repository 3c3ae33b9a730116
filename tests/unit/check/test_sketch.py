"""Sketches: linear, about as long as the vector, and different where one number differs."""

from __future__ import annotations

import pytest
import torch

from paceline.check._sketch import sketch
from paceline.check.observations import combined, distance, length


def tensors(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in ((3,), (100, 97), (4096,), ())]


def test_a_sketch_is_linear():
    a, b = tensors(1), tensors(2)
    both = [2 * x - y for x, y in zip(a, b, strict=True)]
    assert sketch(both) == pytest.approx(combined([sketch(a), sketch(b)], [2, -1]), abs=1e-3)


def test_a_sketch_is_about_as_long_as_the_vector():
    a = tensors(1)
    assert 0.5 < length(sketch(a)) / torch.cat([x.flatten() for x in a]).norm().item() < 1.5


@pytest.mark.parametrize("place", [(0, 0), (1, 9699), (2, 0), (2, 4095), (3, 0)])
def test_one_number_that_differs_is_seen(place):
    a, b = tensors(1), tensors(1)
    b[place[0]].view(-1)[place[1]] += 1.0
    assert distance(sketch(a), sketch(b)) == pytest.approx(1 / length(sketch(a)), rel=0.2)


def test_the_order_of_equal_numbers_counts():
    assert sketch([torch.ones(1), torch.zeros(1)]) != sketch([torch.zeros(1), torch.ones(1)])


def test_none_counts_as_zeros_and_the_random_numbers_stay():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    assert sketch([None, torch.ones(2)]) == sketch([torch.zeros(5), torch.ones(2)])
    assert torch.equal(torch.rand(1), expected)
