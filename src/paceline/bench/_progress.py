"""How far a measurement is: a live bar on a terminal, a line a stage elsewhere, both on standard error.

Drawn by the launching process from the supervisor's tick: it forks ranks, so there is no thread here.
"""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn


class BenchProgress:
    """`with BenchProgress() as progress: progress(0.25, "4 ranks")`."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._said = ""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=1.0)

    def __enter__(self) -> BenchProgress:
        if self._live:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, fraction: float, doing: str) -> None:
        """`fraction` of everything is done; now `doing`."""
        if self._live:
            self._bar.update(self._task, completed=fraction, description=doing)
            self._bar.refresh()
        elif doing != self._said:
            print(f"{fraction:4.0%}  {doing}", file=sys.stderr, flush=True)
        self._said = doing
