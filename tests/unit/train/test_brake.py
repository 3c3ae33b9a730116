"""Slowed ranks and slowed links: what is asked for, and that it takes at least that long."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.comm.links import make_link
from paceline.comm.links._slowed import parse_speed
from paceline.comm.links.thread import in_threads
from paceline.config import RunConfig
from paceline.config.slow import Slowness, parse_slow
from paceline.errors import ConfigError
from paceline.train.brake import Brake


def test_slow_ranks_are_read():
    assert parse_slow("") == {}
    assert parse_slow("1:2.0, 3:4~0.5") == {1: Slowness(2.0), 3: Slowness(4.0, 0.5)}


@pytest.mark.parametrize("text", ["1", "1:", "x:2", "1:0.5", "1:2~2", "1:2,1:3", "1:inf", "-1:2"])
def test_other_words_are_one_line(text):
    with pytest.raises(ConfigError, match="slow = "):
        RunConfig(ranks=4, slow=text)


def test_a_slow_rank_must_exist():
    with pytest.raises(ConfigError, match="ranks 0 to 1"):
        RunConfig(ranks=2, slow="2:2.0")


@given(st.integers(0, 99), st.floats(1, 99), st.floats(0, 1))
def test_any_slowness_is_read_back(rank, factor, jitter):
    factor, jitter = round(factor, 3), round(jitter, 3)
    assert parse_slow(f"{rank}:{factor:.3f}~{jitter:.3f}") == {rank: Slowness(factor, jitter)}


def test_a_brake_pauses_for_the_forward_and_the_last_backward(monkeypatch):
    now, slept = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    brake = Brake(Slowness(3.0), seed=0)
    for forward, backward, communicated in ((1.0, 5.0, 1.0), (2.0, 7.0, 0.0)):
        brake.forward()
        now[0] += forward
        brake.pause()
        now[0] += backward
        brake.backward(communicated)
    assert slept == [2 * 1.0, 2 * (2.0 + 4.0)]


@pytest.mark.parametrize(
    ("text", "latency", "speed"),
    [("1ms", 1e-3, 0.0), ("100mbit", 0.0, 12.5e6), ("0.5ms/8mbit", 5e-4, 1e6)],
)
def test_speeds_are_read(text, latency, speed):
    assert parse_speed(text) == pytest.approx((latency, speed))


@pytest.mark.parametrize("text", ["fast", "/", "1", "1ms2mbit3", "-1ms"])
def test_other_speeds_are_one_line(text):
    with pytest.raises(ConfigError, match="link speed"):
        parse_speed(text)


def test_a_slowed_link_takes_at_least_as_long_as_its_card():
    """100 kB at 8 Mbit/s are 0.1 s, and two senders share the receiver's card."""

    begun = time.monotonic()

    def rank(world) -> float:
        link = make_link("thread@10ms/8mbit", world)
        x = torch.ones(25_000)
        if world.rank == 0:
            for src in (1, 2):
                link.recv(x, src)
        else:
            link.send(x, 0)
        return time.monotonic() - begun

    receiver, *senders = in_threads(3, rank)
    assert all(seconds >= 0.1 for seconds in senders)
    assert receiver >= 0.2 + 0.01
