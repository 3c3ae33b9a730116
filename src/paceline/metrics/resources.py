"""What this machine has and what this process uses: cores, memory, versions, commit."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import resource
import socket
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores this process may really use: its affinity, cut by a container's CPU quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = cpu_quota()
    return max(1, min(cores, math.ceil(quota))) if quota else cores


def threads_for(ranks: int) -> int:
    """Threads of each of this node's ranks, so that every thread has a core."""
    return max(1, usable_cores() // ranks)


def cpu_quota(root: Path = _CGROUP) -> float | None:
    """The cgroup's CPU quota in cores (version 2, then version 1), or None where there is none."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def peak_memory_bytes() -> int:
    """The largest resident set this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if platform.system() == "Darwin" else 1024)


def proportional_memory_bytes() -> int:
    """Resident memory with every shared page divided by the number of its users (else the resident set)."""
    try:
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(psutil.Process().memory_info().rss)


def available_memory_bytes(root: Path = _CGROUP) -> int:
    """Memory that can be had without swapping: the machine's, cut by the cgroup's limit (version 2)."""
    free = int(psutil.virtual_memory().available)
    try:
        limit, used = ((root / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return min(free, max(0, int(limit) - int(used))) if limit.isdigit() else free


@cache
def machine() -> dict[str, Any]:
    """The machine as a report names it."""
    return {
        "host": socket.gethostname(),
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(logical=True) or 1,
        "usable_cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": platform.platform(),
        "kernel": platform.release(),
        "boot_id": boot_id(),
    }


@cache
def boot_id() -> str:
    """Changes with every start of the machine; two processes that read the same one share its clock."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def versions() -> dict[str, str]:
    """Versions that decide the numbers (read from package metadata, so torch is not imported)."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy", "paceline"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


@cache
def commit() -> str:
    """The commit of the source tree this runs from, + where it was changed; empty outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        if not Path(git("rev-parse", "--show-toplevel"), "src/paceline").is_dir():
            return ""  # installed inside somebody else's repository
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return ""
