"""One rank's observations as JSON lines, its count of steps, and how much is enough.

    steps 1 … wanted          all is observed; an epoch is cut short after half of them: two are seen
    after that                every epoch is one step, so that the script reaches its evaluation and its end
    after 5 × wanted          the script is ended: it has a loop that we cannot cut

Each line is written at once: what is known survives a rank that hangs or is killed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_PATIENCE = 5
WATCHED = 3
"""Steps whose gradients are compared."""


class Enough(SystemExit):
    """Ends the script; `except Exception` does not catch it."""

    def __init__(self) -> None:
        super().__init__(0)


class Recorder:
    """`write` takes the facts of one observation."""

    def __init__(self, path: Path, wanted: int) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self.wanted = wanted
        self.steps = 0
        self.backwards = 0
        self.ended = False

    def write(self, kind: str, **facts: Any) -> None:
        if not self._file.closed:
            self._file.write(json.dumps({"kind": kind, **facts}) + "\n")

    @property
    def watching(self) -> bool:
        """Are details still of interest?"""
        return self.steps < self.wanted

    def epoch_is_long_enough(self, steps: int) -> bool:
        """May an epoch that made so many steps be cut?"""
        return steps >= (max(2, self.wanted // 2) if self.watching else 1)

    def stepped(self) -> None:
        """The optimizer has made a step."""
        self.steps += 1
        if self.steps >= _PATIENCE * self.wanted:
            self.ended = True
            raise Enough
