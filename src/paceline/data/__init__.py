"""Data: found, checked and prepared once; mapped by every rank; dealt out so that p changes nothing.

    definition.py  what a set is; sets/ holds one file a set, which reads with idx.py, pickles.py, archive.py
    sources.py     where the files are, and are they the published ones?         fetch.py  downloads them
    cache.py       prepare(name): files -> .npy arrays in the cache, once a machine (lock.py)
    resident.py    Resident(prepared): the arrays as tensors, one physical copy per node
    shard.py       Order, deal: which sample when and by which seat              augment.py  shift, crop, flip
    feed.py        Feed: the batches of one seat, epoch after epoch

Only resident.py and feed.py need torch; they are loaded when Resident, Part, Feed or Batch is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from paceline.data.cache import Prepared, prepare
from paceline.data.shard import Order, deal, evaluation_slice, steps_per_epoch

if TYPE_CHECKING:
    from paceline.data.feed import Batch, Feed
    from paceline.data.resident import Part, Resident

__all__ = [
    "Batch",
    "Feed",
    "Order",
    "Part",
    "Prepared",
    "Resident",
    "deal",
    "evaluation_slice",
    "prepare",
    "steps_per_epoch",
]

_NEEDS_TORCH = {"Batch": "feed", "Feed": "feed", "Part": "resident", "Resident": "resident"}


def __getattr__(name: str) -> object:
    if name in _NEEDS_TORCH:
        return getattr(importlib.import_module(f"paceline.data.{_NEEDS_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
