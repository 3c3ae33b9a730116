"""World: one rank among the others. Joining makes a store and a process group; leaving tears both down.

    place (who am I?) ──▶ store (a few keys, for meeting) ──▶ process group (gloo on CPU, nccl on GPU)

A rank that exits without tearing its group down may abort the process (seen in 3 of 10 two-rank programs),
so a World is only ever had through `joined`, whose finally-clause does it, whatever happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from paceline.comm.warned import once
from paceline.launch.environment import Place


@dataclass(frozen=True)
class World:
    """What a rank knows of itself and how it meets the others."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    nodes: int
    store: Store
    device: torch.device
    deadline: float
    group: dist.ProcessGroup
    """Torch's own process group of these ranks (gloo or nccl); not torch's default one where we are that."""

    def agree(self, key: str, value: str) -> str:
        """Rank 0's value, on every rank (for a folder's name, not for tensors); as often as all ranks ask."""
        key = f"agreed/{key}/{self.store.add(f'agreed/{key}/asked by {self.rank}', 1)}"
        if self.rank == 0:
            self.store.set(key, value)
        return str(self.store.get(key), "utf-8")

    def own_seed(self, seed: int) -> int:
        """A seed of this rank's own, far from every other rank's of every other run."""
        return int(np.random.SeedSequence((seed, self.rank, 0xD20)).generate_state(1, np.uint64)[0] >> 1)


@contextlib.contextmanager
def joined(place: Place, deadline: float) -> Iterator[World]:
    """Join the world of `place`; every wait inside ends after `deadline` seconds."""
    timeout = timedelta(seconds=deadline)
    device = device_of(place)
    store = _store(place, timeout)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=timeout)
    try:
        world = World(
            rank=place.rank,
            size=place.size,
            local_rank=place.local_rank,
            local_size=place.local_size,
            node=place.node,
            nodes=place.nodes,
            store=store,
            device=device,
            deadline=deadline,
            group=dist.distributed_c10d._get_default_group(),
        )
        with once(store, world.rank, world.size):
            yield world
    finally:
        dist.destroy_process_group()


def _store(place: Place, timeout: timedelta) -> Store:
    """Where the ranks meet: on a socket our launcher holds, or where torchrun says."""
    if place.launcher != "local":
        # torchrun's agent serves the store, one key space a restart: torch's own reader knows the rules.
        store: Store = next(rendezvous("env://", place.rank, place.size, timeout=timeout))[0]
        return store
    return TCPStore(
        place.address,
        place.port,
        place.size,
        is_master=place.listen_fd is not None,
        timeout=timeout,
        master_listen_fd=place.listen_fd,
        wait_for_workers=False,
    )


def device_of(place: Place) -> torch.device:
    """One GPU per local rank where there are enough of them, else the CPU."""
    if torch.cuda.is_available() and torch.cuda.device_count() >= place.local_size:
        return torch.device("cuda", place.local_rank)
    return torch.device("cpu")
