"""Look every fact up and have it judged, in the order in which the lines are shown.

Other programs are asked with a deadline. Nothing here imports torch: `_trial` does, in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from paceline.comm.shm import unavailable
from paceline.data.sources import cache_folder, locate
from paceline.doctor import files, machine, measured, network, software
from paceline.doctor.line import Line
from paceline.errors import DataError
from paceline.metrics import resources
from paceline.registry import DATA_SETS

_DEADLINE = 15.0
_LIBRARY = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
)


def examine(seconds: float) -> tuple[list[Line], list[dict[str, Any]]]:
    """All lines, and the rows that were measured; `seconds` of measuring (0: none)."""
    lines = [*_machine(), _network(), software.extension(unavailable())]
    with tempfile.TemporaryDirectory(prefix="paceline-doctor-") as folder:
        from paceline.bench._allreduce_cases import REFERENCE
        from paceline.doctor._trial import trial

        torch, rows, failure = trial(Path(folder), seconds)
    lines += [software.torch(torch, failure), _mpi(), _slurm(), *_files()]
    if torch is not None:
        lines.append(measured.all_reduce(rows, REFERENCE, failure))
    return lines, rows or []


def _machine() -> Iterator[Line]:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield machine.cores(os.cpu_count() or 1, allowed, resources.cpu_quota())
    yield machine.threads(os.environ, resources.usable_cores())
    total, free = None, 0
    with contextlib.suppress(OSError):
        total, _, free = shutil.disk_usage("/dev/shm")
    yield machine.shared_memory(total, free, hasattr(os, "memfd_create"))


def _network() -> Line:
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    kinds = (socket.AF_INET, socket.AF_INET6)
    interfaces = {
        name: [each.address for each in addresses if each.family in kinds]
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
    }
    host, resolved = socket.gethostname(), []
    with contextlib.suppress(OSError):
        resolved = [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    return network.gloo_interface(os.environ.get("GLOO_SOCKET_IFNAME"), interfaces, host, resolved)


def _mpi() -> Line:
    launcher = shutil.which("mpiexec")
    says = _ask(launcher, "--version")[1] if launcher else ""
    code, said = _ask(sys.executable, "-c", _LIBRARY)
    failure = "" if code == 0 or "No module named 'mpi4py'" in said else said.strip().splitlines()[-1]
    return software.mpi(launcher, says, said.strip().partition("\n")[0] if code == 0 else None, failure)


def _slurm() -> Line:
    programs = [name for name in ("srun", "sbatch") if shutil.which(name)]
    failure = ""
    if programs and shutil.which("sinfo"):
        code, said = _ask("sinfo", "--noheader")
        failure = said.strip().partition("\n")[0] if code else ""
    return software.slurm(programs, os.environ, failure)


def _ask(*words: str) -> tuple[int, str]:
    """Exit code and all that another program says; it may not say it for ever."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_DEADLINE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout + (
        done.stderr if done.returncode else ""
    ) or f"exit code {done.returncode}"


def _files() -> Iterator[Line]:
    folder = os.environ.get("PACELINE_DATA")
    missing: dict[str, str | None] = {}
    for name in DATA_SETS.names():
        try:
            locate(name, DATA_SETS.make(name))
            missing[name] = None
        except DataError as error:
            missing[name] = str(error)
    yield files.data_sets(missing, folder, bool(folder) and Path(folder or "").expanduser().is_dir())
    cache, failure = cache_folder(), ""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        failure = error.strerror or str(error)
    yield files.cache(str(cache), failure)
