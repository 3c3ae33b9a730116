"""The report as one HTML page: opens from disk, needs nothing else, light and dark, desk and phone.

The page is page.html (structure) with page.css inside; this file only gathers what they show.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.report import answer
from paceline.report.content import Section
from paceline.report.measured import StudyData
from paceline.report.notices import notices

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent


def render(study: StudyData, sections: list[Section], out: Path) -> str:
    """The HTML text; links are relative to the folder `out`, so the folder can be moved as a whole."""
    from markupsafe import Markup

    return _environment(out).get_template("page.html").render(
        study=study,
        sections=sections,
        headline=answer.headline(study),
        answers=answer.answers(study),
        rule=answer.RULE,
        figures=answer.key_figures(study),
        notices=notices(study),
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        subtitle=subtitle(study),
    )  # fmt: skip


def subtitle(study: StudyData) -> str:
    """What the page is about in half a line: model, data, number of runs."""
    about = sorted(
        {" on ".join(filter(None, (run.text("model"), run.text("data")))) for run in study.runs} - {""}
    )
    finished = f"{len(study.runs)} run{'s' * (len(study.runs) != 1)}"
    without = f", {len(study.failures)} without a result" if study.failures else ""
    return f"{', '.join(about)} · {finished}{without}" if about else finished + without


def glued(text: str) -> str:
    """Numbers keep their unit when the line breaks: `95 %`, `4 ranks`."""
    return re.sub(r"(?<=\d) (?=\S)", "\u00a0", text)


def link(target: Path, out: Path) -> str:
    """The way from the report to a file, as a URL."""
    from urllib.parse import quote

    return quote(Path(os.path.relpath(target, out)).as_posix())


def _environment(out: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["glued"] = glued
    environment.filters["link"] = lambda target: link(target, out)
    environment.filters["drawn"] = lambda drawing: Markup(drawing.inline)  # our own SVG, escaped in svg.py
    return environment
