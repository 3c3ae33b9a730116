"""What a reader must know before believing a number: warnings, data notices, cells that do not compare.

The same warning of six cells is said once and names the six; warnings of one kind stand under one heading,
their code (`oversubscribed: …`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.report import formats
from paceline.report.measured import Group, Run, StudyData


@dataclass(frozen=True)
class Notice:
    """Warnings of one kind: the code, and each text with the groups or runs it is about."""

    code: str
    texts: list[tuple[str, str]]


def notices(study: StudyData) -> list[Notice]:
    """Data first, then what the laws say of a group, then what single runs say."""
    said: dict[str, dict[str, list[str]]] = {}
    for code, text, where in _all(study):
        said.setdefault(code, {}).setdefault(text, []).append(where)
    everywhere = len(study.runs)
    return [
        Notice(code, [(text, _where(places, everywhere)) for text, places in texts.items()])
        for code, texts in said.items()
    ]


def _all(study: StudyData) -> Iterator[tuple[str, str, str]]:
    """(code, text, where), one by one."""
    for run in study.runs:
        if run.text("data_notice") or run.summary.get("data_verified") is False:
            yield (
                "unverified data",
                run.text("data_notice") or f"{run.text('data')} could not be verified",
                run.id,
            )
    for group in study.groups:
        for warning in group.law.get("warnings") or ():
            yield *_split(str(warning)), group.title
        for refusal in _refusals(group):
            yield "not fitted", refusal, group.title
    yield from _different(study)
    for group in study.groups:
        yield from _of_runs(group)


def _of_runs(group: Group) -> Iterator[tuple[str, str, str]]:
    """What single runs say of themselves, but for what is said of their group already."""
    known = {_split(str(warning))[0] for warning in group.law.get("warnings") or ()}
    for run in group.runs:
        for warning in run.summary.get("warnings") or ():
            code, text = _split(str(warning))
            if code not in known:
                yield code, text, run.id


def _refusals(group: Group) -> list[str]:
    """`amdahl: why` and `usl: why` are one line, `amdahl and usl: why`; one p alone needs no excuse."""
    laws: dict[str, list[str]] = {}
    for refusal in group.law.get("refusals") or ():
        law, _, why = str(refusal).rpartition(": ")
        laws.setdefault(why, []).append(law)
    if len(group.ranks) == 1:
        return []
    return [f"{formats.listing(names)}: {why}" if any(names) else why for why, names in laws.items()]


def _split(warning: str) -> tuple[str, str]:
    """`code: text`; a warning without a short code keeps its whole text."""
    code, colon, text = warning.partition(": ")
    return (code, text) if colon and len(code) <= 32 else ("note", warning)


def _where(places: list[str], runs: int) -> str:
    """The groups or runs by name, or how many they are."""
    known = [place for place in places if place]
    if len(known) > 3:
        return f"all {runs} runs" if len(known) == runs else f"{len(known)} runs"
    return "; ".join(known)


def _different(study: StudyData) -> Iterator[tuple[str, str, str]]:
    """Cells measured on different machines, versions or commits do not compare."""
    for what, values in (
        ("machines", [_name(run) for run in study.runs]),
        (
            "torch versions",
            [str((run.summary.get("versions") or {}).get("torch") or "") for run in study.runs],
        ),
        ("commits", [run.text("commit") for run in study.runs]),
    ):
        distinct = sorted({value for value in values if value})
        if len(distinct) > 1:
            yield f"different {what}", f"the runs have {formats.listing(distinct)}; compare with care", ""


def _name(run: Run) -> str:
    machine = run.summary.get("machine") or {}
    return " ".join(str(machine[key]) for key in ("host", "cpu") if machine.get(key))
