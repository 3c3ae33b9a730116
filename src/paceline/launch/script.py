"""Somebody's own script as a rank: what `python script.py` does, in a forked process that has torch already.

    launcher ── import torch, fork ──► rank r: sys.argv, sys.path[0], __main__ as python sets them ─► runpy
       └─ serves the store at MASTER_ADDR:MASTER_PORT until the last rank has ended

A script written for torchrun joins with `init_process_group()` and finds the variables it expects. Rank 0
cannot serve the store itself, as it would without a launcher: the port is taken, so that nobody else can take
it. TORCHELASTIC_USE_AGENT_STORE says so to torch, and every rank connects to the launcher's store; it
outlives rank 0, as torchrun's does. Differences to python: standard input is empty, a line that is printed is
written at once and whole.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import runpy
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from paceline.errors import ConfigError
from paceline.launch.environment import Place

_SERVED = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}


@dataclass(frozen=True)
class Script:
    """`name` is a file, or with `module` what `python -m` takes; `arguments` follow it in sys.argv."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    def check(self) -> None:
        """Refuse a file that is not there, before anything is started."""
        path = Path(self.name)
        if self.module or path.is_file():
            return
        what = "is a folder" if path.is_dir() else "is not there"
        raise ConfigError(f"the script {self.name!r} {what}; give a file, or -m with the name of a module")


def import_torch() -> None:
    """Import in the launcher what every rank would import; nothing of it computes."""
    import torch._dynamo
    import torch.distributed  # noqa: F401 - the first optimizer imports torch._dynamo: 0.9 s, here once


def serve_store(port: int, listen_fd: int) -> object:
    """The ranks' meeting point, served in the launcher as long as the result lives."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(
        "127.0.0.1",
        port,
        None,
        is_master=True,
        timeout=timedelta(seconds=60),
        wait_for_workers=False,
        master_listen_fd=listen_fd,
    )


def run_script(
    script: Script,
    place: Place,
    around: Callable[[Place], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Become the script; returns when it ended well, `sys.exit()` and `sys.exit(0)` included.

    `around(place)` is entered before it begins and left when it has ended, however it did."""
    os.environ.update(place.variables(), **_SERVED)
    sys.argv = [script.name, *script.arguments]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    try:
        with around(place):
            _execute(script)
    except SystemExit as done:
        if done.code not in (None, 0):
            raise
    threading._shutdown()  # type: ignore[attr-defined]  # as python does: wait for threads that are no daemons


def _execute(script: Script) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd() if script.module else Path(script.name).resolve().parent)
    if not script.module:
        runpy.run_path(script.name, run_name="__main__")
        return
    if not _exists(script.name):
        raise ConfigError(f"no module {script.name!r} can be imported from {Path.cwd()}; check the name")
    runpy.run_module(script.name, run_name="__main__", alter_sys=True)


def _exists(module: str) -> bool:
    parents = module.split(".")[:-1]
    return all(importlib.util.find_spec(".".join(parents[: n + 1])) for n in range(len(parents))) and bool(
        importlib.util.find_spec(module)
    )
