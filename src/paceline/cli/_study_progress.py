"""The overall progress of a study: a live bar on a terminal, a line a cell elsewhere.

Drawn by the launching process, which must stay single-threaded because it forks the ranks: the bar is
redrawn from the supervisor's tick and has no thread of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from paceline.metrics.journal import journal_path, read
from paceline.study.grid import Cell
from paceline.study.run import Watcher


class StudyProgress(Watcher):
    """Cells done, the running cell's epoch, and the time left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._live = sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )

    def begin(self, cells: Sequence[Cell], missing: Sequence[Cell]) -> None:
        self._total, self._finished = len(missing), 0
        self._started = time.monotonic()
        done = len(cells) - len(missing)
        self._say(f"{len(cells)} cells, {done} done already, in {self._folder}")
        if self._live and missing:
            self._task = self._bar.add_task("study", total=self._total, note="")
            self._bar.start()

    def start(self, cell: Cell, folder: Path) -> None:
        self._cell, self._place = cell, folder
        self._cell_started = time.monotonic()
        self._draw()

    def tick(self) -> None:
        self._draw()

    def done(self, cell: Cell, error: str | None) -> None:
        self._finished += 1
        seconds = time.monotonic() - self._cell_started
        outcome = f"FAILED: {error}" if error else _outcome(self._place)
        self._say(f"{self._finished:>3}/{self._total} {cell.id}  {seconds:.1f} s  {outcome}")
        self._draw()

    def end(self) -> None:
        self._bar.stop()

    def _say(self, line: str) -> None:
        if self._live:
            self._bar.console.print(line, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._live:
            note = f"{_epoch(self._place)}  {self._left()}"
            self._bar.update(self._task, completed=self._finished, description=_short(self._cell), note=note)
            self._bar.refresh()

    def _left(self) -> str:
        """From the mean time of the cells so far; nothing is claimed before the first has ended."""
        if not self._finished:
            return ""
        mean = (self._cell_started - self._started) / self._finished
        left = mean * (self._total - self._finished) - (time.monotonic() - self._cell_started)
        minutes, seconds = divmod(max(0, round(left)), 60)
        return f"about {minutes}:{seconds:02d} left"


def _short(cell: Cell) -> str:
    return f"{cell.scaling} {cell.config.strategy} p={cell.config.ranks}"


def _epoch(place: Path) -> str:
    """The running cell's last finished epoch, from its journal."""
    try:
        epochs = [line for line in read(journal_path(place, 0)) if line["kind"] == "epoch"]
    except OSError:
        return "starting"
    if not epochs:
        return "epoch 1"
    return f"epoch {len(epochs) + 1}, test {epochs[-1]['test_accuracy']:.2%}"


def _outcome(place: Path) -> str:
    summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    return f"test {summary['test_accuracy']:.2%}, trained {summary['train_seconds']:.2f} s"
