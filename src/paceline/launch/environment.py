"""Who am I? The only reader of the variables by which a launcher tells a process its rank.

    started by      current()
    a shell         None: the command starts the ranks itself (local.py)
    torchrun        a Place read from RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR,
                    MASTER_PORT
    local.start     the same from the same variables: they are exported in each rank for other libraries

A set of variables that is incomplete or contradicts itself is an error and never a guess: a process that
takes itself for rank 0 of 1 trains on all the data, p times. Cost: a dozen dictionary look-ups.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError

_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
# MASTER_ADDR and MASTER_PORT alone do not make a rank: people leave them in their shells.
_NEEDED = (*_RANKS, "MASTER_ADDR", "MASTER_PORT")
_LAUNCHERS = ("local", "torchrun")


@dataclass(frozen=True)
class Place:
    """One rank's place in the world, and where the world meets (address and port of its store)."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    nodes: int
    launcher: str
    address: str
    port: int
    listen_fd: (
        int | None
    )  # rank 0 of a local start: the socket that listens on (address, port), for the store
    started: float  # time.time() when the command began: start-up is measured from here

    def variables(self) -> dict[str, str]:
        """The place as torchrun's variables, which `read` understands (but for the file descriptor)."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "GROUP_RANK": str(self.node),
            "GROUP_WORLD_SIZE": str(self.nodes),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "PACELINE_LAUNCHER": self.launcher,
            "PACELINE_STARTED": repr(self.started),
        }


def current() -> Place | None:
    """This process's place, or None when no launcher started it."""
    return read(os.environ, started=command_started())


def read(variables: Mapping[str, str], *, started: float) -> Place | None:
    """The place that the variables describe, all of them checked; `started` where they do not say it."""
    present = [name for name in _RANKS if name in variables]
    if not present:
        return None
    missing = [name for name in _NEEDED if not variables.get(name)]
    if missing:
        raise ConfigError(
            f"{present[0]} is set but {', '.join(missing)} is not; start with torchrun, which sets all of "
            f"{', '.join(_NEEDED)}, or unset {' '.join(present)} to let paceline start the ranks"
        )
    local_size = _integer(variables, "LOCAL_WORLD_SIZE", 1)
    size = _integer(variables, "WORLD_SIZE", 1)
    nodes = -(-size // local_size)  # unless it is said: as many ranks on every node
    if "GROUP_WORLD_SIZE" in variables:
        nodes = _integer(variables, "GROUP_WORLD_SIZE", 1)
    place = Place(
        rank=_integer(variables, "RANK", 0),
        size=size,
        local_rank=_integer(variables, "LOCAL_RANK", 0),
        local_size=local_size,
        node=_integer(variables, "GROUP_RANK", 0),
        nodes=nodes,
        launcher=_launcher(variables),
        address=variables["MASTER_ADDR"],
        port=_integer(variables, "MASTER_PORT", 1, 65535),
        listen_fd=None,
        started=_started(variables, started),
    )
    _check(place)
    return place


def command_started() -> float:
    """When the command that this process belongs to began: its launcher's start if that is torchrun."""
    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    return process_started(os.getppid() if torchrun else os.getpid())


def process_started(pid: int) -> float:
    """time.time() at which a process began, to 10 ms; now, where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The second field is the name in brackets and may hold anything; starttime is the 20th after it.
        ticks = int(stat.rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return time.time()
    return time.time() - max(0.0, age)


def _integer(variables: Mapping[str, str], name: str, least: int, most: int | None = None) -> int:
    text = variables[name]
    # int() alone takes "1_0", " 1" and other alphabets' digits: no launcher writes those.
    number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
    if number is None or number < least or (most is not None and number > most):
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        raise ConfigError(f"{name}={text!r} is not an integer of {allowed}; unset it or start with torchrun")
    return number


def _launcher(variables: Mapping[str, str]) -> str:
    if "TORCHELASTIC_RUN_ID" in variables:  # also when torchrun was itself called inside a local rank
        return "torchrun"
    name = variables.get("PACELINE_LAUNCHER", "torchrun")
    if name not in _LAUNCHERS:
        raise ConfigError(f"PACELINE_LAUNCHER={name!r} is not one of {', '.join(_LAUNCHERS)}; unset it")
    return name


def _started(variables: Mapping[str, str], otherwise: float) -> float:
    text = variables.get("PACELINE_STARTED")
    if text is None:
        return otherwise
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"PACELINE_STARTED={text!r} is not a time in seconds; unset it") from None


def _check(place: Place) -> None:
    """Refuse numbers that cannot be true together, naming the variables."""
    below = [
        ("RANK", place.rank, "WORLD_SIZE", place.size),
        ("LOCAL_RANK", place.local_rank, "LOCAL_WORLD_SIZE", place.local_size),
        ("GROUP_RANK", place.node, "GROUP_WORLD_SIZE", place.nodes),
    ]
    for name, number, limit_name, limit in below:
        if number >= limit:
            raise ConfigError(f"{name}={number} is not below {limit_name}={limit}; ranks count from 0")
    elsewhere = (
        place.size - place.local_size
    )  # at least one rank on every other node, none if there is no other
    if elsewhere < place.nodes - 1 or (place.nodes == 1 and elsewhere):
        raise ConfigError(
            f"WORLD_SIZE={place.size} and LOCAL_WORLD_SIZE={place.local_size} do not fit "
            f"GROUP_WORLD_SIZE={place.nodes} nodes; start with torchrun or unset them all"
        )
    before = place.rank - place.local_rank  # ranks on the nodes before this one
    if before < place.node or (place.node == 0 and before):
        raise ConfigError(
            f"RANK={place.rank} and LOCAL_RANK={place.local_rank} do not fit GROUP_RANK={place.node}; "
            "start with torchrun or unset them all"
        )
