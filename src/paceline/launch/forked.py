"""A rank's side of the fork: from the copy of a launcher to a process of its own, and out again.

    fork ─► dies with the launcher ─► own process group ─► what is another rank's is closed ─► own variables,
    threads, signals ─► function(place) ─► says how it ended ─► own exit handlers, flush ─► os._exit

Nothing may return or raise into the launcher's code, of which this process is a copy.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from paceline.launch.environment import Place
from paceline.launch.failure import record
from paceline.launch.signals import Signals
from paceline.launch.supervise import RETURNED

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before the fork: it is one system call afterwards


def be_rank(
    function: Callable[[Place], None],
    place: Place,
    *,
    threads: int,
    launcher: int,
    said_fd: int,
    not_mine: Iterable[int],
    signals: Signals,
) -> NoReturn:
    """Call the function and exit; `said_fd` takes how it ended.

    Exit handlers that the launcher registered are the launcher's; those that the function registers run here.
    Threads that the function leaves are not waited for."""
    code = 1
    try:
        atexit._clear()
        _die_with(launcher)
        os.setpgid(0, 0)  # Ctrl-C in the terminal reaches the launcher alone
        for fd in not_mine:
            os.close(fd)
        faulthandler.enable(said_fd)
        _look_like_a_rank(place, threads)
        signals.forget_in_rank()
        function(place)
        os.write(said_fd, RETURNED)
        code = 0
    except SystemExit as error:
        code = _exit_code(error, said_fd)
    except BaseException as error:
        os.write(said_fd, record(error))
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    finally:
        _leave(code)


def _die_with(launcher: int) -> None:
    """Have the kernel kill this process when the launcher ends, however it ends."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != launcher:
        os._exit(1)  # refused, or the launcher died before the kernel was told


def _look_like_a_rank(place: Place, threads: int) -> None:
    """Set what other libraries look for, the number of threads, and an empty standard input."""
    os.environ.update(place.variables())
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS=str(threads))
    if torch := sys.modules.get("torch"):  # OpenMP read its variable when torch was imported: say it again
        torch.set_num_threads(threads)
    # Reading the terminal from outside its foreground group would stop the process; end of file is an error.
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)


def _exit_code(error: SystemExit, said_fd: int) -> int:
    """As Python has it: None is 0, a number is itself, a text is an error message and 1."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    os.write(said_fd, record(error))
    return 1


def _leave(code: int) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # TERM and KILL still end what hangs from here on
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
