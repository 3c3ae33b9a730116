"""What the cells of one group have in common, and how the group is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.report import formats


@dataclass(frozen=True)
class Key:
    """What the cells of one group have in common."""

    scaling: str | None
    strategy: str
    collective: str
    batch: float | None
    data: str
    model: str
    variant: str = ""

    def order(self) -> tuple[int, str, str, str, float, str, str]:
        """Strong before weak before neither, then by name."""
        rank = {"strong": 0, "weak": 1}.get(self.scaling or "", 2)
        return rank, self.variant, self.strategy, self.collective, self.batch or 0.0, self.data, self.model

    def matches(self, entry: Mapping[str, Any]) -> bool:
        """Is this entry of laws.json about the same group?"""
        named = (
            entry.get("scaling"),
            entry.get("strategy"),
            entry.get("collective") or "",
            entry.get("batch"),
            entry.get("variant") or "",
        )
        return named == (self.scaling, self.strategy, self.collective, self.batch, self.variant)

    def label(self, *, with_model: bool = False) -> str:
        """`ddp native, batch 128`, and the model and data where a report has several."""
        words = [self.strategy, self.collective]
        if self.collective in ("", "none", self.strategy):
            words = [self.strategy]
        if self.variant:
            words = [self.variant]
        kind = {"strong": "global batch", "weak": "batch per rank"}.get(self.scaling or "", "batch")
        label = " ".join(words) + (f", {kind} {formats.count(self.batch)}" if self.batch is not None else "")
        return f"{label}, {self.model} on {self.data}" if with_model else label
