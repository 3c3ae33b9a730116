"""Shared memory of the ranks of one node: the C core, memory that all of them map, and a group over both.

    _core.c     the collectives themselves: copying, combining, waiting (no torch, no allocation)
    memory.py   memory without a name that exactly these ranks map, reserved before it is used
    group.py    meets the others, calls the core, turns its numbers into errors

`unavailable()` says why there is no core here, if there is none.
"""

from __future__ import annotations

import importlib
import sys


def unavailable() -> str | None:
    """Why shared memory cannot be used on this machine (None: it can)."""
    if sys.platform == "win32":
        return "it needs a POSIX system"
    try:
        importlib.import_module("paceline.comm.shm._core")
    except ImportError as error:
        return (
            f"its C extension is not built ({error}); install a C compiler, then `pip install` paceline again"
        )
    return None
