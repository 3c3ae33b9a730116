"""What was measured, as the report sees it: a run, a group of comparable runs, a study of groups.

    StudyData ── groups ──▶ Group (label, law) ── runs ──▶ Run (summary, curves)

A group holds the cells that differ in ranks and repeat only. A quantity of a group at p ranks is the median
over the repeats; speed-ups and intervals are those of laws.json wherever it speaks of exactly these cells.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.summary import seconds_to
from paceline.report.keys import Key

Curve = NDArray[np.float64]
CURVES = ("train_accuracy", "test_accuracy", "train_loss", "test_loss")
PHASES = ("data", "compute", "communicate", "wait", "update", "other")


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run: its folder, its summary and its curves (one number per epoch)."""

    folder: Path
    summary: Mapping[str, Any]
    curves: Mapping[str, Curve]

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def ranks(self) -> int:
        return int(self.summary.get("ranks") or 1)

    @cached_property
    def key(self) -> Key:
        scaling = self.text("scaling") or None
        return Key(
            scaling=scaling,
            strategy=self.text("strategy"),
            collective=self.text("collective"),
            batch=self.number("batch" if scaling == "weak" else "global_batch"),
            data=self.text("data"),
            model=self.text("model"),
            variant=self.text("variant"),
        )

    def text(self, key: str) -> str:
        """A word of the summary; empty when it is not there."""
        value = self.summary.get(key)
        return "" if value is None else str(value)

    def number(self, key: str) -> float | None:
        """A finite number of the summary, else None."""
        value = self.summary.get(key)
        usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if usable and value is not None else None

    def numbers(self, key: str) -> list[float]:
        """A list of the summary with one number per rank."""
        value = self.summary.get(key)
        return [float(x) for x in value if x is not None] if isinstance(value, list) else []

    def seconds_to(self, target: str) -> float | None:
        """Training seconds until the test accuracy reached this target; None when it never did."""
        accuracy, seconds = self.curves["test_accuracy"], self.numbers("epoch_seconds")
        if len(accuracy) != len(seconds):
            return None
        return seconds_to(float(target), accuracy, np.asarray(seconds))

    @property
    def memory_per_node(self) -> float | None:
        """Proportional memory of all ranks of one node: shared pages are counted once."""
        parts = self.numbers("proportional_memory_bytes")
        return sum(parts) / (self.number("nodes") or 1) if parts else None

    @property
    def memory_per_rank(self) -> float | None:
        """Peak resident memory of the largest rank."""
        return max(self.numbers("peak_memory_bytes"), default=None)

    @property
    def usable_cores(self) -> int | None:
        """Cores that the run's processes were allowed to use, on each node."""
        machine = self.summary.get("machine") or {}
        cores = machine.get("usable_cores") or machine.get("cores")
        return int(cores) if cores else None

    @property
    def crowded(self) -> bool:
        """More ranks than cores on a node: such a run measures sharing cores as well."""
        cores = self.usable_cores
        return cores is not None and self.ranks > cores * (self.number("nodes") or 1)


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in ranks and repeat only, with the analysis of exactly these runs (or none)."""

    key: Key
    label: str
    runs: tuple[Run, ...]
    law: Mapping[str, Any]
    law_file: Path | None

    @cached_property
    def ranks(self) -> list[int]:
        return sorted({run.ranks for run in self.runs})

    @property
    def scaling(self) -> str:
        """`strong scaling`, `weak scaling`, or `scaling not stated`."""
        return f"{self.key.scaling} scaling" if self.key.scaling else "scaling not stated"

    @property
    def title(self) -> str:
        return f"{self.label} ({self.scaling})" if self.key.scaling else self.label

    @property
    def slug(self) -> str:
        """Names this group's figures: letters, digits and dashes."""
        words = [self.key.scaling or "", self.label]
        return "-".join("".join(c if c.isalnum() else " " for c in " ".join(words)).split()).lower()

    @property
    def repeated(self) -> bool:
        """Is there a p with more than one run?"""
        return len(self.runs) > len(self.ranks)

    def at(self, p: int) -> list[Run]:
        return [run for run in self.runs if run.ranks == p]

    def values(self, p: int, key: str) -> list[float]:
        """One number per repeat that has it."""
        return [value for run in self.at(p) if (value := run.number(key)) is not None]

    def median(self, p: int, key: str) -> float | None:
        return middle(self.values(p, key))

    def typical(self, p: int) -> Run:
        """The repeat with the median training time (the lower of two)."""
        ordered = sorted(self.at(p), key=lambda run: run.number("train_seconds") or 0.0)
        return ordered[(len(ordered) - 1) // 2]

    def memory(self, p: int) -> tuple[float | None, float | None]:
        """(peak of the largest rank, proportional memory of a node), medians over the repeats."""
        peaks = [run.memory_per_rank for run in self.at(p)]
        nodes = [run.memory_per_node for run in self.at(p)]
        return middle([x for x in peaks if x is not None]), middle([x for x in nodes if x is not None])

    def crowded(self, p: int) -> bool:
        return any(run.crowded for run in self.at(p))

    @property
    def baseline(self) -> int:
        """The p that speed-ups are relative to: 1, or the smallest where 1 was not measured."""
        return self.ranks[0]

    def rate(self, p: int) -> float | None:
        """Median samples a second."""
        return self.median(p, "samples_per_second")

    def speedup(self, p: int) -> float | None:
        """From laws.json, else the ratio of the median throughputs."""
        said = (self.law.get("speedup") or {}).get(str(p))
        if said is not None:
            return float(said)
        here, base = self.rate(p), self.rate(self.baseline)
        return here / base if here is not None and base else None

    def speedup_interval(self, p: int) -> tuple[float, float] | None:
        """The 95 % interval over repeats; None without repeats."""
        said = (self.law.get("speedup_interval") or {}).get(str(p))
        return (float(said[0]), float(said[1])) if said else None

    def efficiency(self, p: int) -> float | None:
        """Speed-up over the ideal, which is p over the baseline's p."""
        speedup = self.speedup(p)
        return None if speedup is None else speedup * self.baseline / p

    @property
    def verdict(self) -> str:
        return str(self.law.get("verdict") or "")


@dataclass(frozen=True)
class Failure:
    """A cell without a result: it failed, its files cannot be read, or it was not run."""

    id: str
    folder: Path | None
    error: str
    rank: int | None
    details: str


@dataclass(frozen=True, eq=False)
class StudyData:
    """Everything one report is about."""

    folders: tuple[Path, ...]
    about: tuple[Mapping[str, Any], ...]
    runs: tuple[Run, ...]
    groups: tuple[Group, ...]
    failures: tuple[Failure, ...]

    @property
    def title(self) -> str:
        named = [str(study.get("title") or study.get("name") or "") for study in self.about]
        if not any(named) and len(self.runs) == 1:
            named = [self.runs[0].text("name") or self.runs[0].id]
        return " + ".join(dict.fromkeys(name for name in named if name)) or self.folders[0].name

    @property
    def question(self) -> str:
        return " ".join(str(study["question"]) for study in self.about if study.get("question"))

    @property
    def commands(self) -> list[str]:
        """What reproduces it: the study's command, else each run's."""
        said = [str(study["command"]) for study in self.about if study.get("command")]
        return list(dict.fromkeys(said or [run.text("command") for run in self.runs if run.text("command")]))

    @property
    def targets(self) -> list[str]:
        """Accuracies whose time is asked for, by a study or by a run's own target; smallest first."""
        asked = [target for study in self.about for target in study.get("targets") or []]
        asked += [target for run in self.runs if (target := run.number("target")) is not None]
        return [str(target) for target in sorted(set(map(float, asked)))]

    @property
    def compare(self) -> str:
        """What cells are compared at: equal samples, updates or seconds."""
        return next((str(study["compare"]) for study in self.about if study.get("compare")), "samples")

    @property
    def compared(self) -> list[Group]:
        """Groups with at least two values of p."""
        return [group for group in self.groups if len(group.ranks) > 1]

    @property
    def law_files(self) -> list[Path]:
        """Each laws.json that the speed-ups are from."""
        return list(dict.fromkeys(group.law_file for group in self.compared if group.law_file))

    def scalings(self) -> list[str | None]:
        """The kinds of scaling there are, strong first."""
        return list(dict.fromkeys(group.key.scaling for group in self.groups))


def middle(values: Sequence[float]) -> float | None:
    """The median, or None of nothing."""
    return statistics.median(values) if values else None
