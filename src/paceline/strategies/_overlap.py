"""Buckets that set out during backward: each is started as soon as it and all before it are complete.

    backward   ──g3─g2──┬──g1──┬────g0──┬───▶ step()
                        │      └ bucket 2 is complete, but 1 is not: it waits
    start      bucket 0 ┘         bucket 1 ┘ then 2 at once; what is left starts in step()

Autograd may finish parameters in another order on another rank, and a rank that does not use a parameter
never finishes it: starting strictly in the order 0, 1, … is what keeps the ranks in step.
Cost: one Python call a parameter in backward (about 1 µs).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence

from torch import Tensor

from paceline.comm.collectives import Collective, Pending
from paceline.errors import PacelineError
from paceline.strategies._messages import Message


class Departures:
    """Starts every message once a window, in order; `early` ones from inside backward."""

    def __init__(self, collective: Collective, messages: Sequence[Message], *, early: bool) -> None:
        self._collectives = [collective.labelled(f"bucket {number}") for number in range(len(messages))]
        self._messages = messages
        self._early = early
        self._pending: list[Pending] = []
        self._hooks = []
        self._expect()
        if early:
            for number, message in enumerate(messages):
                for place, parameter in enumerate(message.bucket.parameters):
                    hook = functools.partial(self._arrived, number, place)
                    self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nothing starts by itself in here."""
        before, self._early = self._early, False
        try:
            yield
        finally:
            self._early = before

    def finish(self) -> None:
        """Start what has not been started, and wait for all; afterwards a new window begins."""
        while len(self._pending) < len(self._messages):
            self._start_next()
        for message, pending in zip(self._messages, self._pending, strict=True):
            pending.wait()
            message.unpack()
        self._pending = []
        if self._hooks:
            self._expect()

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _expect(self) -> None:
        """Sets, not counts: activation checkpointing may finish a parameter more than once in a backward."""
        self._missing = [set(range(len(message.bucket.parameters))) for message in self._messages]

    def _start_next(self) -> None:
        number = len(self._pending)
        self._pending.append(self._collectives[number].start(self._messages[number].pack(), "avg"))

    def _arrived(self, number: int, place: int, _parameter: Tensor) -> None:
        if not self._early:
            return
        if number < len(self._pending):
            raise PacelineError(
                "a second backward pass reached gradients that are already being averaged; put all backward "
                "passes of a step but the last into `with strategy.accumulating():`, or use overlap = 'off'"
            )
        self._missing[number].discard(place)
        while len(self._pending) < len(self._missing) and not self._missing[len(self._pending)]:
            self._start_next()
