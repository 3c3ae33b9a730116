"""Any PyTorch program on our collectives: `import paceline.backend`, then name it where gloo was named.

    dist.init_process_group("paceline")              shared memory on one node, else gloo
    dist.init_process_group("cpu:paceline_ring")     a collective by name: ring, butterfly, …
    dist.new_group(ranks, backend="paceline_auto")   for some groups only

Importing it registers the names and nothing else: a collective is loaded when a group is made.
"""

from __future__ import annotations

import functools
from typing import Any

from paceline.registry import COLLECTIVES

NAME = "paceline"


def names() -> list[str]:
    """What torch.distributed takes as a backend once this is imported."""
    return [NAME, *(f"{NAME}_{collective}" for collective in COLLECTIVES.names())]


def register() -> None:
    """Make the names known to torch.distributed; twice is harmless."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    for name in names():
        if name in dist.Backend.backend_list:
            continue
        collective = name.removeprefix(NAME).removeprefix("_") or None
        make = functools.partial(_group, collective)
        dist.Backend.register_backend(name, make, extended_api=True, devices=["cpu"])


def _group(collective: str | None, options: Any, chosen: Any = None) -> Any:
    from paceline.comm.backend import make_group

    return make_group(options, collective, chosen)


register()
