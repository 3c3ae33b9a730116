"""What rank 0 shows: a live line on a terminal, a plain line an epoch elsewhere. The other ranks are silent.

epoch  3/15 ━━━━━━━━╸━━━━━━━━━━  412/938 steps  21,400 samples/s  loss 0.0713  test 98.41 %  0:00:41 left
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from paceline.config import Plan
from paceline.metrics.events import Events

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_REFRESH = 0.1  # seconds between two drawings; drawing costs about 1 ms


class Progress(Protocol):
    """What the loop tells; a rank that shows nothing gets `Silent`."""

    def begin(self, plan: Plan) -> None: ...
    def step(self, done: int, samples: int, loss: float) -> None: ...
    def say(self, doing: str) -> None: ...
    def note(self, text: str) -> None: ...
    def epoch(self, epoch: int, step: int, scores: Mapping[str, float]) -> None: ...
    def end(self) -> None: ...


class Silent:
    """Shows nothing."""

    def begin(self, plan: Plan) -> None: ...
    def step(self, done: int, samples: int, loss: float) -> None: ...
    def say(self, doing: str) -> None: ...
    def note(self, text: str) -> None: ...
    def epoch(self, epoch: int, step: int, scores: Mapping[str, float]) -> None: ...
    def end(self) -> None: ...


class Shown:
    """Rank 0's: TensorBoard events always; lines or a live bar unless `quiet`."""

    def __init__(self, folder: Path, *, quiet: bool) -> None:
        self._events = Events(folder)
        self._quiet = quiet
        self._live = not quiet and sys.stderr.isatty()
        self._bar: Bar | None = None
        self._samples = 0
        self._drawn = 0.0
        self._accuracy = ""

    def begin(self, plan: Plan) -> None:
        self._plan = plan
        self._started = self._epoch_started = time.monotonic()
        if self._live:
            self._bar = _bar()
            self._task = self._bar.add_task("training", total=plan.steps, note="")
            self._bar.start()

    def step(self, done: int, samples: int, loss: float) -> None:
        self._samples += samples
        now = time.monotonic()
        if self._bar is None or now - self._drawn < _REFRESH:
            return
        self._drawn = now
        epoch = (done - 1) // self._plan.steps_per_epoch + 1
        rate = self._samples / (now - self._started)
        note = f"{rate:,.0f} samples/s  loss {loss:.4f}{self._accuracy}"
        self._bar.update(
            self._task, completed=done, note=note, description=f"epoch {epoch}/{self._plan.epochs}"
        )
        self._bar.refresh()

    def say(self, doing: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, note=doing)
            self._bar.refresh()

    def note(self, text: str) -> None:
        """Something found before training begins, in the plan's own form."""
        if not self._quiet:
            print(f"note      {text}", file=sys.stderr, flush=True)

    def epoch(self, epoch: int, step: int, scores: Mapping[str, float]) -> None:
        self._events.scalars(step, scores)
        loss, train, test = (scores[name] for name in ("loss/train", "accuracy/train", "accuracy/test"))
        self._accuracy = f"  test {test:.2%}"
        if self._quiet:
            return
        now = time.monotonic()
        line = (
            f"epoch {epoch + 1:>3}/{self._plan.epochs}  loss {loss:.4f}  train {train:.2%}  test {test:.2%}  "
            f"{now - self._epoch_started:.1f} s"
        )
        self._epoch_started = now
        if self._bar is not None:
            self._bar.console.print(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Twice is harmless; a bar that is not stopped leaves a terminal without its cursor."""
        if self._bar is not None:
            self._bar.stop()
        self._events.close()


def _bar() -> Bar:
    """Made (and rich imported) only where there is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,  # no second thread beside training
        transient=True,
    )
