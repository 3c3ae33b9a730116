"""Signals as readable bytes: none is lost, not even one that comes when nobody looks any more."""

from __future__ import annotations

import signal

import pytest

from paceline.launch.signals import Signals


def test_what_came_is_read():
    with Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.wait(0) == [signal.SIGINT]


def test_one_that_nobody_read_is_handled_as_usual_afterwards():
    with pytest.raises(KeyboardInterrupt), Signals():
        signal.raise_signal(signal.SIGINT)


def test_it_does_not_stand_in_for_an_error():
    with pytest.raises(ValueError, match="mine"), Signals():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("mine")
