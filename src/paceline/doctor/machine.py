"""Cores and quota, threads, /dev/shm."""

from __future__ import annotations

import math
from collections.abc import Mapping

from paceline.doctor.line import ADVICE, BROKEN, FINE, Line

_MANY_BYTES = 512 << 20  # a default container has 64 MB
_THREADS = "OMP_NUM_THREADS"


def cores(all_cores: int, allowed: int, quota: float | None) -> Line:
    """`allowed` by affinity; `quota` by the cgroup, in cores."""
    usable = max(1, min(allowed, math.ceil(quota))) if quota else allowed
    found = f"{usable} usable of {all_cores}"
    if quota and quota < allowed:
        found += f", quota {quota:g} cores"
    if quota and quota < usable:
        return Line(
            "cores", ADVICE, found,
            f"the quota is not a whole number: {usable} busy ranks are stopped for part of the time; use "
            f"{max(1, math.floor(quota))} or raise the quota",
        )  # fmt: skip
    if usable == 1:
        return Line(
            "cores", ADVICE, found, "more ranks than one cannot be faster here; they can be tried out"
        )
    return Line("cores", FINE, found)


def threads(variables: Mapping[str, str], usable: int) -> Line:
    """Paceline sets the threads of its own ranks; the variable counts for everything else."""
    said = variables.get(_THREADS)
    if said is None:
        return Line("threads", FINE, f"{_THREADS} is not set; every rank gets usable cores / ranks")
    if not said.isdecimal() or int(said) < 1:
        return Line("threads", BROKEN, f"{_THREADS}={said!r} is not a number of threads", f"unset {_THREADS}")
    if int(said) > usable:
        return Line(
            "threads", ADVICE, f"{_THREADS}={said} with {usable} usable cores",
            f"unset {_THREADS}, or set it to usable cores / ranks",
        )  # fmt: skip
    return Line("threads", FINE, f"{_THREADS}={said}")


def shared_memory(total: int | None, free: int, nameless: bool) -> Line:
    """`total` is None where there is no /dev/shm; `nameless`: memory that does not count against it."""
    what = "/dev/shm"
    if total is None:
        if nameless:
            return Line(what, ADVICE, "there is none", "DataLoader processes need it: mount a tmpfs there")
        return Line(what, BROKEN, "there is none, and no memfd either", "mount a tmpfs there")
    found = f"{_size(free)} free of {_size(total)}"
    if free < min(_MANY_BYTES, 16 << 20):
        return Line(what, ADVICE, found, "delete what other programs left there, or make it larger")
    if total < _MANY_BYTES:
        return Line(what, ADVICE, found, "DataLoader processes may fill it: docker run --shm-size=2g")
    return Line(what, FINE, found + (", and not needed: nameless memory" if nameless else ""))


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 1 << 30 else f"{count / 2**20:.0f} MB"
