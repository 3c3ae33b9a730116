"""A Python warning that several ranks raise is shown once, and whose it was if not every rank's.

    warning ─▶ new to this rank? ─▶ counted in the store ─▶ the first rank shows it, the others are silent
    the last rank to leave ─▶ for each that not every rank raised: "warning of rank 1 only: …"

Cost: three messages to the store for each different warning of a rank, and one or two when it leaves. A rank
that fails leaves without them; what it raised was shown.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from torch.distributed import Store  # type: ignore[attr-defined]

_PATIENCE = timedelta(seconds=1)  # of rank 0, which may serve the store, when it leaves


@contextlib.contextmanager
def once(store: Store, rank: int, size: int) -> Iterator[None]:
    """Until the end of the block, warnings of these ranks are shown once."""
    if size == 1:
        yield
        return
    show, seen = warnings.showwarning, set[str]()

    def showwarning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any, **named: Any
    ) -> None:
        text = f"{filename}:{lineno}: {category.__name__}: {message}"
        if text in seen:
            return
        seen.add(text)
        if _is_first(store, rank, text):
            show(message, category, filename, lineno, *rest, **named)

    warnings.showwarning = showwarning
    try:
        yield
    finally:
        warnings.showwarning = show
    with contextlib.suppress(RuntimeError):  # the store has gone: so has the rank that served it
        _leave(store, rank, size)


def _is_first(store: Store, rank: int, text: str) -> bool:
    """Note that this rank raised it; True if no other has. Without a store everybody is the first."""
    try:
        number = store.add("warned/count", 1)
        store.set(f"warned/{number}", json.dumps([rank, text]))
        return int(store.add(f"warned/{hashlib.sha256(text.encode()).hexdigest()}", 1)) == 1
    except RuntimeError:
        return True


def gone(store: Store, ranks: int) -> None:
    """So many ranks have died: nobody waits for them to leave. Said once, by one of the others."""
    store.add("warned/left", ranks)


def _leave(store: Store, rank: int, size: int) -> None:
    if store.add("warned/left", 1) % size == 0:
        noted = [json.loads(store.get(f"warned/{n + 1}")) for n in range(store.add("warned/count", 0))]
        for line in partial(noted, size):
            print(line, file=sys.stderr, flush=True)
        store.set("warned/said", "")
    elif rank == 0:
        store.wait(["warned/said"], _PATIENCE)


def partial(noted: list[tuple[int, str]], size: int) -> list[str]:
    """One line for each warning that some ranks raised and others did not."""
    ranks: dict[str, set[int]] = {}
    for rank, text in noted:
        ranks.setdefault(text, set()).add(rank)
    return [
        f"paceline: warning of rank {', '.join(map(str, sorted(those)))} only: {text}"
        for text, those in ranks.items()
        if len(those) < size
    ]
