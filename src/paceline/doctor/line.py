"""One line of the doctor's: what was looked at, how it is, what was found, what to do.

fine     as it should be
advice   it works; something would make it work better, or on more machines
broken   something that Paceline needs, or that somebody asked for, does not work
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

FINE, ADVICE, BROKEN = "fine", "advice", "broken"


@dataclass(frozen=True)
class Line:
    """`do` is empty where all is fine."""

    what: str
    state: str
    found: str
    do: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)
