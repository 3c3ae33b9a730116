"""Which collective a process group of torch's gets, and what is beneath it.

    gloo (connected as ever) ─► which ranks share a boot? ─► the chosen collective ─► all ranks have it? ─► go
                                                                    │ no, and nobody asked for it by name
                                                                    ▼
                                                             torch's own group: gloo does everything

Rank 0's PACELINE_COLLECTIVE counts, so that ranks cannot differ. A collective named by the user is never
replaced: where it cannot be had, every rank hears why.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from paceline.comm.checked import checked
from paceline.comm.collectives import Collective
from paceline.comm.world import World
from paceline.errors import ConfigError, PacelineError
from paceline.metrics import resources
from paceline.registry import COLLECTIVES

CPU = torch.device("cpu")
ON_ONE_NODE = "shm"
"""What is taken where nobody chose and all ranks share a node."""


def gloo_of(options: Any, key: str = "") -> dist.ProcessGroupGloo:
    """Torch's own backend among the same ranks, made as torch makes it; another key gives another."""
    store = PrefixStore(key, options.store) if key else options.store
    gloo = dist.ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    gloo._set_sequence_number_for_group()
    return gloo


def plain_group(options: Any, gloo: dist.ProcessGroupGloo) -> dist.ProcessGroup:
    """A process group with nothing but gloo: what our collectives send over, and what takes the rest."""
    group = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    group._register_backend(CPU, dist.ProcessGroup.BackendType.GLOO, gloo)
    return group


def world_of(options: Any, group: dist.ProcessGroup) -> World:
    """These ranks as collectives know them; a node is a boot of a machine."""
    rank, size = options.group_rank, options.group_size
    boot = int.from_bytes(hashlib.sha256(resources.boot_id().encode()).digest()[:7], "big")
    mine, all_ = torch.tensor([boot]), [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    group.allgather([all_], [mine]).wait()
    boots = [int(each) for each in all_]
    return World(
        rank=rank,
        size=size,
        local_rank=boots[:rank].count(boot),
        local_size=boots.count(boot),
        node=list(dict.fromkeys(boots)).index(boot),
        nodes=len(set(boots)),
        store=PrefixStore("paceline", options.store),
        device=CPU,
        deadline=options.timeout.total_seconds(),
        group=group,
    )


def collective_of(
    world: World, name: str | None, given: Mapping[str, Any], apart: Callable[[], dist.ProcessGroup]
) -> Collective | None:
    """The one asked for (by the backend's name, pg_options, or rank 0's variable); None: leave it to gloo.

    It may use gloo on a thread of ours while the program's own messages pass: hence a gloo `apart`."""
    options = dict(given)
    name = options.pop("collective", None) or name
    name = name or world.agree("collective", os.environ.get("PACELINE_COLLECTIVE", "")) or None
    if name is not None:
        return _made(dataclasses.replace(world, group=apart()), name, options)
    if world.nodes > 1:
        return None
    try:
        return _made(world, ON_ONE_NODE, options)
    except PacelineError:
        return None


def _made(world: World, name: str, options: Mapping[str, Any]) -> Collective:
    """On all ranks, or on none."""
    collective: Collective | None = None
    problem = ""
    try:
        collective = COLLECTIVES.make(name, world, options=options)
    except (PacelineError, ImportError, OSError, TypeError, ValueError) as error:
        problem = str(error)
    failed = torch.tensor([float(collective is None)])
    world.group.allreduce([failed]).wait()
    if not failed.item() and collective is not None:
        return checked(collective, world)
    if collective is not None:
        collective.close()
    raise ConfigError(problem or f"collective {name!r} cannot be had on another rank, whose error says why")
