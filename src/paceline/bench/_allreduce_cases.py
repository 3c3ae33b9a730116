"""What is compared: a collective by its registry name, its options, and where its tensors lie.

ring                 the collective of that name
torch                another name for `native`
shm:zero_copy        the same collective on tensors from its own `allocate` (any name may be so marked)
ring[link=mpi]       with options of its constructor
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.config.files import parse_options
from paceline.errors import ConfigError
from paceline.registry import COLLECTIVES

REFERENCE = "native"
"""What every PyTorch program uses: the others' times are divided by its time."""
ZERO_COPY = ":zero_copy"
_ALIASES = {"torch": REFERENCE}
_WORD = re.compile(r"(?P<name>[^\[\]]+?)(?:\[(?P<options>.*)\])?(?P<form>:zero_copy)?")


@dataclass(frozen=True)
class Case:
    """One collective as it is measured; the label is what the user wrote."""

    label: str
    name: str
    options: Mapping[str, Any]
    zero_copy: bool

    @property
    def reference(self) -> bool:
        return self.name == REFERENCE and not self.options and not self.zero_copy


def parse(label: str) -> Case:
    """One word of --collectives; names and options are checked when the collective is loaded."""
    plain = label.removesuffix(ZERO_COPY)
    match = _WORD.fullmatch(plain)
    if match is None:
        raise ConfigError(
            f"--collectives {label!r}: write NAME, NAME:zero_copy or NAME[OPTION=VALUE], joined with commas"
        )
    name = _ALIASES.get(match["name"], match["name"])
    return Case(
        label, COLLECTIVES.check(name), parse_options(match["options"] or ""), label.endswith(ZERO_COPY)
    )


def parse_all(labels: Sequence[str]) -> list[Case]:
    """All cases; each may be named once."""
    cases = [parse(label) for label in labels]
    for case in cases:
        COLLECTIVES.check_options(case.name, case.options)
        if [each.label for each in cases].count(case.label) > 1:
            raise ConfigError(f"--collectives names {case.label!r} twice; name each once")
    return cases


def every_case() -> list[str]:
    """The reference first, then every name of the registry; those that allocate tensors, in that form too."""
    from paceline.comm.collectives import Collective

    names = sorted(COLLECTIVES.names(), key=lambda name: (name != REFERENCE, name))
    labels = []
    for name in names:
        labels.append(name)
        if COLLECTIVES.load(name).allocate is not Collective.allocate:
            labels.append(name + ZERO_COPY)
    return labels


def split(text: str) -> list[str]:
    """At commas outside brackets: `ring[a=1,b=2],shm` is two."""
    return [word.strip() for word in re.split(r",(?![^\[]*\])", text) if word.strip()]
