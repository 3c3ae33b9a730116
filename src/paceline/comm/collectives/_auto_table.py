"""Which collective for which tensor: a table of measured sizes, and the file in which it is kept.

    kind of type    measured at (bytes)            a tensor belongs to the nearest measured size, in ratios
    float           4 k   64 k   1 M   16 M        3 kB → 4 k,  200 kB → 64 k or 1 M, whichever is nearer
    half            4 k          1 M               float16 and bfloat16: added in float32, so other costs
    other           4 k          1 M               whole numbers

The file's name is a hash of all that decides it (machine, versions, ranks, candidates), so a table of another
machine or version is not found rather than wrong. A file that cannot be read as a table is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

SIZES: Mapping[str, tuple[int, ...]] = {
    "float": (1 << 12, 1 << 16, 1 << 20, 1 << 24),
    "half": (1 << 12, 1 << 20),
    "other": (1 << 12, 1 << 20),
}
TYPES = {"float": torch.float32, "half": torch.bfloat16, "other": torch.int64}
"""What each kind is measured with."""
_SCHEMA = 1
Choices = dict[str, dict[int, str]]
"""Kind -> bytes measured -> name."""


def kind_of(dtype: torch.dtype) -> str:
    """The row of the table."""
    if dtype in (torch.float16, torch.bfloat16):
        return "half"
    return "float" if dtype.is_floating_point else "other"


def nearest(sizes: Sequence[int], nbytes: int) -> int:
    """The measured size whose ratio to `nbytes` is smallest; of two equal ones the smaller."""
    return min(sizes, key=lambda size: (max(size, nbytes) / max(1, min(size, nbytes)), size))


def choose(choices: Choices, dtype: torch.dtype, nbytes: int) -> str:
    """The name for a tensor; a kind that was not measured goes by the float row."""
    row = choices.get(kind_of(dtype)) or choices["float"]
    return row[nearest(list(row), nbytes)]


def fastest(seconds: Mapping[str, float]) -> str:
    """The name with the smallest time; of equal ones the first in the alphabet."""
    return min(sorted(seconds), key=seconds.__getitem__)


def path_of(folder: Path, key: Mapping[str, Any]) -> Path:
    """Where the table of this key is kept."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return folder / "collectives" / f"auto-{key['ranks']}-{digest}.json"


def encode(key: Mapping[str, Any], choices: Choices, seconds: Mapping[str, Any]) -> dict[str, Any]:
    """What is written: the choices, and the measurements they come from."""
    return {"schema": _SCHEMA, "key": dict(key), "choices": choices, "seconds": seconds}


def as_choices(values: Mapping[str, Mapping[Any, Any]]) -> Choices:
    """From JSON, whose keys are all texts."""
    return {kind: {int(size): str(name) for size, name in row.items()} for kind, row in values.items()}


def decode(text: str, key: Mapping[str, Any], names: Sequence[str]) -> Choices | None:
    """The choices, or None when the text is not a whole table of this key about these names."""
    try:
        found = json.loads(text)
        if found["schema"] != _SCHEMA or found["key"] != key:
            return None
        choices = as_choices(found["choices"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    rows = [choices.get("float"), *choices.values()]
    whole = all(row and set(row.values()) <= set(names) for row in rows)
    return choices if whole and set(choices) <= set(SIZES) else None
