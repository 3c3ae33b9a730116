"""The journals of a run, read into memory: one Story a rank, its lines by kind.

A rank that died and was survived left a journal without an end; rank 0's says that it was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.errors import PacelineError
from paceline.metrics.journal import read

Floats = NDArray[np.float64]


@dataclass
class Story:
    """One rank's journal, by kind."""

    start: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Ranks that died and were survived, as rank 0 noted them."""
    end: dict[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> Floats:
        """One number per step, over the whole run."""
        return np.concatenate([np.zeros(0), *(np.asarray(line[name], float) for line in self.steps)])

    def moments(self, name: str) -> Floats:
        """Arrivals or returns of each step in seconds of this node's clock (nan where nothing was sent)."""
        parts = [line["at"] + np.asarray(line[name], float) * 1e-6 for line in self.steps]
        return np.concatenate([np.zeros(0), *parts])


def stories_of(folder: Path) -> list[Story]:
    """The journals in rank order; one that is missing, or without an end although its rank was not lost, is
    an error that names the rank."""
    stories = []
    for rank, path in enumerate(sorted(folder.glob("journal-*.jsonl"), key=_rank_of)):
        story = Story()
        for line in read(path):
            kind = line.pop("kind")
            if kind in ("start", "end"):
                setattr(story, kind, line)
            elif kind == "note":
                story.notes.append(line["text"])
            else:
                getattr(story, {"steps": "steps", "epoch": "epochs", "lost": "lost"}[kind]).append(line)
        stories.append(story)
        lost = {line["rank"] for line in stories[0].lost}
        if _rank_of(path) != rank or not (story.end or rank in lost):
            raise PacelineError(f"{path} is incomplete: rank {rank} did not finish")
    if not stories:
        raise PacelineError(f"no journal in {folder}: is it the folder of a run?")
    return stories


def _rank_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])
