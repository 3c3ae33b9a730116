"""What a rank says when it ends badly, and which of several bad ends was the cause.

    rank (dying)                              launcher
    exception ──record()──► one JSON line ──► outcome() ─┐
    native crash ──faulthandler──► its stack ─► outcome() ├─► cause(): the one that is shown
    exit status ───────────────────────────► outcome() ─┘

When one rank fails its neighbours fail too, with closed connections, and often end before it: a rank that
raises tears its connections down first. So the order of arrival does not decide alone. The failure of least
weight is the cause, among equals the earliest:

    0  its own: killed by a signal, an exception of its own, a bare exit
    1  a testimony: this rank names another one that fell silent (RankFailed)
    2  an own failure or a testimony after the launcher had begun to stop the ranks: may be our own doing
    3  a consequence: the connection closed, a time-out, something that gloo or the store says

JSON and plain text only: nothing that a rank wrote is unpickled.
"""

from __future__ import annotations

import json
import re
import signal
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError, DataError, PacelineError, RankFailed, UsageError

OWN, TESTIMONY, LATE, CONSEQUENCE = range(4)

_USAGE = {kind.__name__: kind for kind in (UsageError, ConfigError, DataError)}
# torch is not imported here: its classes are known by name. DistError is the root of its DistBackendError,
# DistNetworkError and DistStoreError; gloo raises plain RuntimeErrors and is known by what they say.
_CONSEQUENCES = {"ConnectionError", "TimeoutError", "EOFError", "DistError"}
_GLOO = re.compile(r"gloo|connection (closed|reset|refused)|broken pipe|timed out|socket", re.IGNORECASE)
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_HINTS = {
    signal.SIGKILL: "if nobody sent it, the kernel was out of memory: use fewer ranks or a smaller batch",
    signal.SIGBUS: "often a full /dev/shm or a file that was cut short while it was mapped",
}


@dataclass(frozen=True)
class Failure:
    """One rank's bad end. `at` is time.monotonic(), which all processes of a machine share."""

    rank: int
    reason: str
    details: str
    weight: int
    at: float
    stopped: bool = False  # by one of the signals that the launcher sends to stop the ranks
    usage: UsageError | None = None

    def error(self) -> PacelineError:
        """What the launcher raises: the user's mistake as it was, anything else with the rank's name."""
        return self.usage or RankFailed(self.rank, self.reason, self.details)


def record(error: BaseException) -> bytes:
    """One line of JSON about an exception, written by the rank that dies of it."""
    shown = _shown(error)
    named = shown if isinstance(shown, RankFailed) else None
    usage = next((base.__name__ for base in type(shown).__mro__ if base.__name__ in _USAGE), None)
    fields = {
        "kind": type(shown).__name__,
        "message": str(shown),
        "usage": usage,
        "named": [named.rank, named.reason] if named else None,
        "interrupted": isinstance(_origin(error), KeyboardInterrupt),
        "consequence": _is_consequence(_origin(error)),
        "details": "".join(traceback.format_exception(_without_our_frames(error))),
        "at": time.monotonic(),
    }
    return json.dumps(fields).encode() + b"\n"


def outcome(rank: int, *, code: int, signal_number: int, said: str, at: float) -> Failure:
    """How a rank ended, from its exit code or the signal that killed it, and from what it `said`:
    a record or nothing, then what faulthandler wrote in a native crash."""
    said = said.partition("\nExtension modules:")[0]  # faulthandler's list of every loaded library
    first, _, rest = said.partition("\n")
    fields: dict[str, Any] = json.loads(first) if first.startswith("{") and first.endswith("}") else {}
    details = "\n".join(part for part in (fields.get("details", ""), rest if fields else said) if part)
    failure = Failure(rank, "", details, OWN, fields.get("at", at))
    if fields:
        return _raised(failure, fields)
    if signal_number:
        return replace(failure, reason=_killed(signal_number), stopped=signal_number in _STOPPING)
    return replace(failure, reason=f"left with exit code {code} before its function returned")


def cause(failures: Iterable[Failure]) -> Failure:
    """The one failure that explains the others."""
    return min(failures, key=lambda failure: (failure.weight, failure.at, failure.rank))


def explained(failure: Failure, lost: Sequence[Failure]) -> Failure:
    """A testimony or a consequence may be of a rank that was lost before: then that loss is the cause."""
    if failure.weight == CONSEQUENCE and lost:
        return lost[-1]
    named = [loss for loss in lost if failure.weight == TESTIMONY and loss.rank == failure.rank]
    return named[-1] if named else failure


def late(failure: Failure) -> Failure:
    """The same failure, seen after the launcher had begun to stop the ranks."""
    return replace(failure, weight=max(failure.weight, LATE))


def _raised(failure: Failure, fields: dict[str, Any]) -> Failure:
    if fields["interrupted"]:
        return replace(failure, reason="was interrupted by SIGINT", stopped=True)
    if fields["usage"]:
        return replace(failure, usage=_USAGE[fields["usage"]](fields["message"]))
    if fields["named"]:
        rank, reason = fields["named"]
        return replace(failure, rank=rank, reason=reason, weight=TESTIMONY)
    message = fields["message"].strip().partition("\n")[0]
    reason = f"raised {fields['kind']}: {message}" if message else f"raised {fields['kind']}"
    return replace(failure, reason=reason, weight=CONSEQUENCE if fields["consequence"] else OWN)


def _without_our_frames(error: BaseException) -> BaseException:
    """The traceback begins where somebody's own code does: how a rank came to call it explains nothing."""
    frame = error.__traceback__
    while frame and _is_ours(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return error.with_traceback(frame or error.__traceback__)


def _is_ours(file: str) -> bool:
    return file == "<frozen runpy>" or Path(file).parent == Path(__file__).parent


def _killed(number: int) -> str:
    try:
        kind = signal.Signals(number)
    except ValueError:  # real-time signals have numbers only
        return f"was killed by signal {number}"
    hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
    return f"was killed by {kind.name}{hint}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what it came from or what was being handled when it came, to the first of all."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _origin(error: BaseException) -> BaseException:
    """The first of the chain decides what the failure is."""
    return list(_chain(error))[-1]


def _shown(error: BaseException) -> BaseException:
    """The last of the chain that tells something: a teardown that fails or is interrupted hides nothing."""
    telling = (link for link in _chain(error) if not isinstance(link, KeyboardInterrupt))
    return next((link for link in telling if not _is_consequence(link)), error)


def _is_consequence(error: BaseException) -> bool:
    names = {base.__name__ for base in type(error).__mro__}
    return bool(names & _CONSEQUENCES) or (type(error) is RuntimeError and bool(_GLOO.search(str(error))))
