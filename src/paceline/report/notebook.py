"""The report as a Jupyter notebook: it reads the run folders and draws the same figures and tables again.

No number is written into it: the code cells load the files beside the notebook. The outputs they have
given are stored too, so that it can be read without running it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from paceline.report import answer
from paceline.report.canvas import Drawing
from paceline.report.content import Section
from paceline.report.measured import StudyData
from paceline.report.notices import notices
from paceline.report.tables import Table

Cell = dict[str, Any]

_SETUP = """\
from IPython.display import Markdown, display

from paceline.report import answer, compare, cooperation, plots, read, scaling_plots, settings, tables
from paceline.report.notebook import answer_text, notice_text

study = read.load({folders!r})"""


def render(study: StudyData, sections: list[Section], out: Path) -> str:
    """The notebook as JSON text; its folders are given relative to `out`, where it is meant to run."""
    import nbformat

    folders = [Path(os.path.relpath(folder, out)).as_posix() for folder in study.folders]
    cells = [
        _text(f"# {study.title}\n\n{study.question}", "title"),
        _code(_SETUP.format(folders=folders), "load", []),
        _code("Markdown(answer_text(study))", "answer", [_markdown(answer_text(study))]),
    ]
    if notice_text(study):
        cells.append(_code("Markdown(notice_text(study))", "warnings", [_markdown(notice_text(study))]))
    for section in sections:
        cells.append(
            _text(f"## {section.title}\n\n{section.lead}\n\nFrom {section.source}.", f"{section.id}-text")
        )
        shown = [*map(_shown, section.drawings), *map(_shown, section.tables)]
        cells.append(_code(section.code, section.id, shown))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}
    nbformat.validate(book)
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def answer_text(study: StudyData) -> str:
    """The answer as Markdown."""
    blocks = ["## The answer"]
    for said in answer.answers(study):
        blocks += [f"### {said.group.title}", *(f"**{question}.** {text}" for question, text in said.parts())]
    return "\n\n".join(blocks + ([answer.RULE] if study.compared else []))


def notice_text(study: StudyData) -> str:
    """Warnings and cells without a result as Markdown; empty when there are none."""
    said = [(notice.code, *text) for notice in notices(study) for text in notice.texts]
    lines = [f"- **{code}:** {text}" + (f" ({where})" if where else "") for code, text, where in said]
    lines += [f"- **no result:** `{failure.id}`: {failure.error}" for failure in study.failures]
    return "\n".join(["## Warnings", "", *lines]) if lines else ""


def _text(source: str, id: str) -> Cell:
    return {"cell_type": "markdown", "id": id, "metadata": {}, "source": source.strip()}


def _code(source: str, id: str, outputs: list[Cell]) -> Cell:
    cell: Cell = {"cell_type": "code", "id": id, "metadata": {}, "source": source}
    return cell | {"execution_count": None, "outputs": outputs}


def _markdown(text: str) -> Cell:
    return _output({"text/markdown": text})


def _shown(part: Drawing | Table) -> Cell:
    """What `display` shows of a drawing or a table."""
    if isinstance(part, Drawing):
        return _output({"image/svg+xml": part._repr_svg_()})
    return _output({"text/html": part._repr_html_()})


def _output(data: dict[str, str]) -> Cell:
    return {"output_type": "display_data", "metadata": {}, "data": data}
