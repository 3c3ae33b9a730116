"""Unequal machines on one machine: which ranks are slower than they could be, and by how much.

"1:2.0"            rank 1 takes twice as long for a step's forward and backward
"1:2.0,3:4~0.5"    rank 3 four times, give or take half of what is added, drawn anew each step
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from paceline.errors import ConfigError

_FORM = re.compile(r"(\d{1,4}):(\d+(?:\.\d+)?)(?:~(\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Slowness:
    """A rank's: `factor` times as long, the added part varied by `jitter` of itself."""

    factor: float = 1.0
    jitter: float = 0.0


def parse_slow(text: str) -> dict[int, Slowness]:
    """Slow ranks by their number."""
    found: dict[int, Slowness] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        match = _FORM.fullmatch(word)
        if not match:
            raise ConfigError(f"slow = {text!r}: {word!r} is not RANK:FACTOR such as 1:2.0, or 1:2.0~0.5")
        rank, slowness = int(match[1]), Slowness(float(match[2]), float(match[3] or 0))
        if slowness.factor < 1 or not math.isfinite(slowness.factor) or slowness.jitter > 1:
            raise ConfigError(f"slow = {text!r}: the factor is at least 1, and ~jitter at most 1")
        if rank in found:
            raise ConfigError(f"slow = {text!r}: rank {rank} is named twice")
        found[rank] = slowness
    return found
