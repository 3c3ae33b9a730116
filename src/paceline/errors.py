"""Every error Paceline raises, and the exit code it ends the command with.

    PacelineError                  1   something went wrong; the message says what and where
    ├── UsageError                 2   the user can mend it: one line, no traceback
    │   ├── ConfigError            2   a key, an option, or a combination of them
    │   └── DataError              2   a data file is missing, truncated, altered or of the wrong shape
    ├── RankFailed                 1   a rank raised, was killed, or fell silent; names it first
    ├── RanksDisagree              1   ranks called different collectives; the same line on every rank
    └── Incomplete                 3   a study finished, but some of its cells failed

A message is one line: what happened, what was expected or allowed, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class PacelineError(Exception):
    """The root: catching it catches everything Paceline raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(PacelineError):
    """A mistake the user can mend; shown as one line without a traceback."""

    exit_code = 2


class ConfigError(UsageError):
    """A key, an option, or a combination that cannot be."""


class DataError(UsageError):
    """A data file that is missing, truncated, altered or of the wrong shape."""


class RankFailed(PacelineError):
    """One rank ended the run. `rank` is the culprit, `details` its own traceback (may be empty)."""

    def __init__(self, rank: int, reason: str, details: str = "") -> None:
        super().__init__(f"rank {rank} {reason}")
        self.rank = rank
        self.reason = reason
        self.details = details

    def __reduce__(self) -> tuple[type[RankFailed], tuple[int, str, str]]:
        return type(self), (self.rank, self.reason, self.details)


class RanksDisagree(PacelineError):
    """Ranks called a collective with another shape, type, operation or root; shows both calls."""


class Incomplete(PacelineError):
    """A study whose report was made although some cells failed."""

    exit_code = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` where a known word is close, else the list of them (never both: one line)."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return "there is " + ", ".join(names)


def one_of(option: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is none of the allowed ones."""
    if value not in allowed:
        raise ConfigError(f"{option} = {value!r}; {did_you_mean(str(value), allowed)}")
