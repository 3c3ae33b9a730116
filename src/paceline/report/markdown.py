"""The report as Markdown: the same sections, with the figures as files beside it (figures/*.svg)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from paceline.report import answer
from paceline.report.content import Section
from paceline.report.measured import Failure, StudyData
from paceline.report.notices import notices
from paceline.report.page import link, subtitle
from paceline.report.tables import Cell, Table


def render(study: StudyData, sections: list[Section], out: Path) -> str:
    """The Markdown text; links are relative to `out`."""
    blocks = [f"# {plain(study.title)}", plain(study.question), plain(subtitle(study)), *_answer(study, out)]
    blocks += _notices(study)
    for section in sections:
        blocks += section_blocks(section, out)
    if study.commands:
        blocks += ["## Reproduce", "\n".join(["```sh", *study.commands, "```"])]
    return "\n\n".join(block for block in blocks if block) + "\n"


def plain(text: str) -> str:
    """Text that Markdown takes literally, on one line."""
    for special in "\\`*_[]<>|":
        text = text.replace(special, f"\\{special}")
    return " ".join(text.split())


def _answer(study: StudyData, out: Path) -> Iterator[str]:
    yield "## The answer"
    figures = answer.key_figures(study)
    rows = [[Cell(figure.label), Cell(figure.value), Cell(figure.note)] for figure in figures]
    yield _table(Table("", ["", "", ""], rows), out) if rows else ""
    first = answer.headline(study)
    if first and len(study.groups) > 1:
        yield f"The table is about {plain(first.group.title)}: the fastest at its recommended p."
    for said in answer.answers(study):
        yield f"### {plain(said.group.title)}"
        yield "\n".join(f"- **{question}.** {plain(text)}" for question, text in said.parts())
    yield plain(answer.RULE) if study.compared else ""
    files = [link(file, out) for file in study.law_files]
    yield (
        "Speed-ups, intervals and verdicts: " + ", ".join(f"[{file}]({file})" for file in files)
        if files
        else ""
    )


def _notices(study: StudyData) -> Iterator[str]:
    found = notices(study)
    if found:
        yield "## Warnings"
        yield "\n".join(
            f"- **{plain(notice.code)}:** {plain(text)}" + (f" ({plain(where)})" if where else "")
            for notice in found
            for text, where in notice.texts
        )
    if study.failures:
        yield "## Cells without a result"
        yield "\n".join(_failure(failure) for failure in study.failures)


def _failure(failure: Failure) -> str:
    who = f" (rank {failure.rank})" if failure.rank is not None else ""
    line = f"- **{plain(failure.id)}**{who}: {plain(failure.error)}"
    details = textwrap.indent(failure.details.strip(), " " * 6)  # a code block inside the list item
    return f"{line}\n\n{details}\n" if details else line


def section_blocks(section: Section, out: Path) -> Iterator[str]:
    """One section; figures are files in figures/ beside it."""
    yield f"## {section.title}"
    yield plain(section.lead)
    for drawing in section.drawings:
        yield f"![{plain(drawing.description)}](figures/{drawing.name}.svg)"
        yield f"*{plain(drawing.title)}.* {plain(drawing.caption)}"
    for table in section.tables:
        yield f"**{plain(table.title)}**"
        yield _table(table, out)
    yield f"From {plain(section.source)}."


def _table(table: Table, out: Path) -> str:
    heads = "| " + " | ".join(plain(name) for name, _ in table.heads) + " |"
    rule = "|" + "|".join(" ---: " if number else " --- " for _, number in table.heads) + "|"
    rows = ["| " + " | ".join(_cell(cell, out) for cell in row) + " |" for row in table.rows]
    return "\n".join([heads, rule, *rows])


def _cell(cell: Cell, out: Path) -> str:
    return f"[{plain(cell.text)}]({link(cell.target, out)})" if cell.target else plain(cell.text)
