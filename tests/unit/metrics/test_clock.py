"""Every moment of training belongs to exactly one phase."""

from __future__ import annotations

import pytest

from paceline.metrics import clock as clock_module
from paceline.metrics.clock import PHASES, Clock, Meter


@pytest.fixture
def at(monkeypatch):
    """Set the time by hand."""
    now = [100.0]
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, seconds)


def test_laps_add_up_and_pauses_belong_to_nobody(at):
    clock = Clock()
    for time, phase in [(101, "data"), (103, "forward"), (106, "backward"), (110, "update")]:
        at(time)
        clock.lap(phase)
    clock.move("update", "communicate", 3.0)
    at(150)
    clock.resume()
    at(151)
    clock.lap("data")
    taken = clock.take()
    assert taken == dict.fromkeys(PHASES, 0.0) | {
        "data": 2, "forward": 2, "backward": 3, "update": 1, "communicate": 3,
    }  # fmt: skip
    assert sum(clock.take().values()) == 0


def test_meter_counts_and_spans():
    meter = Meter()
    assert meter.take_span() is None
    meter.add(1.0, 1.5, 40)
    meter.add(1.5, 1.75, 8)
    assert (meter.calls, meter.bytes) == (2, 48)
    assert meter.take_span() == (1.0, 1.75)
    assert meter.take_span() is None
    assert meter.take_seconds() == 0.75
    meter.expose(2.0, 2.25)
    assert meter.take_seconds() == 0.25
    assert (meter.calls, meter.seconds) == (2, 1.0)
