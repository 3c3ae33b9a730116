"""What one rank observed, read back from its lines. Pure: no torch, no processes.

observed-<rank>.jsonl   one fact a line, {"kind": …}; a last line that was cut off is left out
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Sketch = Sequence[float]


@dataclass(frozen=True)
class Pass:
    """One pass over a DataLoader; of one that shows no indices, only the purpose is known."""

    number: int
    samples: int | None = None  # in the data set, or in the set that it is a subset of
    chosen: int | None = None  # in the data set that the loader was given
    identity: int | None = None
    subset: int = 0  # which choice, 0 for all of them
    batches: int | None = None
    drop_last: bool = False
    sampler: str = ""
    set_epoch: bool = False
    purpose: str | None = None
    exhausted: bool = False
    taken: tuple[tuple[int, ...], ...] = ()  # the indices of each batch


@dataclass
class Rank:
    """Everything that one rank wrote."""

    rank: int
    joining: tuple[int, int] | None = None
    joined: tuple[int, int] | None = None
    threads: Mapping[str, int] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    rows: dict[int, list[int]] = field(default_factory=dict)  # step -> what went into the model
    replicas: dict[int, Sketch] = field(default_factory=dict)  # step -> the parameters before it
    sizes: Sequence[int] = ()
    shared: bool = False
    norms: list[tuple[str, int, Sketch]] = field(default_factory=list)
    gradients: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    calls: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    how: str = "killed"
    steps: int = 0

    def trained(self) -> list[Pass]:
        return [each for each in self.passes if each.purpose == "training"]

    def evaluated(self) -> list[Pass]:
        return [each for each in self.passes if each.purpose == "evaluation"]


def file_of(folder: Path, rank: int) -> Path:
    return folder / f"observed-{rank}.jsonl"


def read(folder: Path, ranks: int) -> list[Rank]:
    """Every rank's observations; a rank that wrote nothing has observed nothing."""
    found = []
    for rank in range(ranks):
        path = file_of(folder, rank)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        found.append(
            gather(rank, [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"])
        )
    return found


def gather(rank: int, lines: Sequence[Mapping[str, Any]]) -> Rank:
    """The lines as one record."""
    found = Rank(rank)
    passes: dict[int, dict[str, Any]] = {}
    for line in lines:
        facts = {key: value for key, value in line.items() if key != "kind"}
        match line["kind"]:
            case "pass":
                passes[facts["number"]] = facts
            case "purpose":
                passes[facts["number"]]["purpose"] = facts["purpose"]
            case "exhausted":
                passes[facts["number"]]["exhausted"] = True
            case "batch":
                passes[facts["number"]].setdefault("taken", []).append(tuple(facts["indices"]))
            case kind:
                _note(found, kind, facts)
    found.passes = [Pass(**{**facts, "taken": tuple(facts.get("taken", ()))}) for facts in passes.values()]
    return found


def _note(found: Rank, kind: str, facts: dict[str, Any]) -> None:
    match kind:
        case "joining":
            found.joining = (facts["rank"], facts["size"])
        case "joined":
            found.joined = (facts["rank"], facts["size"])
        case "threads":
            found.threads = facts
        case "forward":
            found.rows.setdefault(facts["step"], []).extend(facts["rows"])
        case "replica":
            found.replicas[facts["step"]] = facts["sketch"]
            found.sizes, found.shared = facts["sizes"], facts["shared"]
        case "norms":
            found.norms.append((facts["when"], facts["step"], facts["sketch"]))
        case "gradient":
            found.gradients[facts["step"]] = facts
        case "calls":
            found.calls[facts["step"]] = [(name, size) for name, size in facts["calls"]]
            found.steps = max(found.steps, facts["step"] + 1)
        case "end":
            found.how, found.steps = facts["how"], facts["steps"]


def length(sketch: Sketch) -> float:
    """About the length of the vector behind a sketch."""
    return math.sqrt(sum(value * value for value in sketch) / len(sketch))


def distance(a: Sketch, b: Sketch) -> float:
    """About |a - b| / |a|, whichever of the two is longer."""
    longest = max(length(a), length(b))
    return length([x - y for x, y in zip(a, b, strict=True)]) / longest if longest else 0.0


def combined(sketches: Sequence[Sketch], weights: Sequence[float]) -> list[float]:
    """The sketch of the weighted sum."""
    return [
        sum(w * value for w, value in zip(weights, values, strict=True))
        for values in zip(*sketches, strict=True)
    ]
