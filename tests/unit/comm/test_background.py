"""A collective in the background: order, errors where they are waited for, an end."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from paceline.comm.background import Background
from paceline.comm.collectives import Collective
from paceline.comm.measured import Measured
from paceline.errors import PacelineError
from paceline.metrics.clock import Meter


class Slow(Collective):
    """Alone in its world; held until `gate` is open, fails at the call with 13 elements."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        self.gate = threading.Event()
        self.lengths: list[int] = []
        self.seen: set[tuple[str, bool]] = set()

    def all_reduce_(self, flat, operation="sum"):
        assert self.gate.wait(10)
        self.lengths.append(flat.numel())
        self.seen.add((threading.current_thread().name, torch.is_grad_enabled()))
        if flat.numel() == 13:
            raise OSError("the cable is out")
        return flat.add_(1)


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def background(slow):
    made = Background(slow, deadline=5)
    yield made
    slow.gate.set()
    made.close()


def test_start_returns_at_once_and_calls_run_in_their_order_on_one_thread(slow, background):
    tensors = [torch.zeros(n) for n in (3, 1, 2)]
    pending = [background.start(t) for t in tensors]
    assert slow.lengths == [] and background.asynchronous
    slow.gate.set()
    background.all_reduce_(torch.zeros(7))
    assert slow.lengths == [3, 1, 2, 7]
    assert slow.seen == {("paceline-collective", False)}
    for each in reversed(pending):
        each.wait()
        each.wait()
    assert all(t.eq(1).all() for t in tensors)


def test_an_error_is_raised_by_its_wait_and_ends_all_that_follows(slow, background):
    first, bad, behind = (background.start(torch.zeros(n)) for n in (2, 13, 4))
    slow.gate.set()
    first.wait()
    with pytest.raises(OSError, match="cable"):
        bad.wait()
    with pytest.raises(PacelineError, match="earlier collective failed: the cable is out"):
        behind.wait()
    for call in (lambda: background.start(torch.zeros(1)), background.barrier):
        with pytest.raises(PacelineError, match="earlier collective failed"):
            call()
    assert slow.lengths == [2, 13]
    background.close()


def test_a_call_that_does_not_end_is_an_error_after_the_deadline(slow):
    background = Background(slow, deadline=0.05)
    pending = background.start(torch.zeros(2))
    with pytest.raises(PacelineError, match=r"did not end within 0\.05 s"):
        pending.wait()
    slow.gate.set()
    background.close()


def test_the_deadline_counts_from_the_end_of_the_call_before(slow):
    class Steady(Slow):
        def all_reduce_(self, flat, operation="sum"):
            time.sleep(0.1)
            return flat

    background = Background(Steady(), deadline=0.25)
    pending = [background.start(torch.zeros(1)) for _ in range(6)]
    pending[-1].wait()
    background.close()


def test_closing_finishes_what_is_queued_and_ends_the_thread(slow, background):
    pending = background.start(torch.zeros(2))
    slow.gate.set()
    background.close()
    background.close()
    pending.wait()
    assert not background._engine._thread.is_alive()
    with pytest.raises(PacelineError, match="closed"):
        background.start(torch.zeros(2))


def test_a_rank_that_fails_does_not_wait_for_the_others_first(slow):
    background = Background(slow, deadline=3600)
    background.start(torch.zeros(2))
    with pytest.raises(OSError, match="mine"):
        try:
            raise OSError("mine")
        finally:
            background.close()
    slow.gate.set()
    background.close()


def test_the_last_tensor_is_not_kept(slow, background):
    import weakref

    slow.gate.set()
    tensor = torch.zeros(3)
    pending = background.start(tensor)
    pending.wait()
    gone = weakref.ref(tensor)
    del tensor
    background.barrier()
    assert gone() is None


def test_every_call_and_its_result_passes_through(slow, background):
    slow.gate.set()
    assert torch.equal(background.reduce_scatter(torch.zeros(2)), torch.ones(2))
    assert torch.equal(background.reduce_scatter_lent(torch.zeros(2), torch.empty(2)), torch.ones(2))
    assert torch.equal(
        background.broadcast_(torch.zeros(2, dtype=torch.uint8)), torch.ones(2, dtype=torch.uint8)
    )
    assert background.all_gather(torch.zeros(2)).shape == (1, 2)
    assert background.allocate(4, torch.float64, torch.device("cpu")).dtype == torch.float64


def test_a_measuring_decorator_stays_outside_and_is_told_on_the_thread_that_waits(slow):
    slow.gate.set()
    meter = Meter()
    measured = Measured(slow, meter).decorated(lambda inner: Background(inner, deadline=5))
    assert measured.asynchronous
    pending = measured.start(torch.zeros(5))
    assert meter.calls == 0
    pending.wait()
    assert (meter.calls, meter.bytes) == (1, 20)
    assert slow.seen == {("paceline-collective", False)}
    measured.close()
