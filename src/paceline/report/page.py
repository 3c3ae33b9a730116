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
    from markupsafe import Markup

_HERE = Path(__file__).parent


def render(study: StudyData, sections: list[Section], out: Path) -> str:
    """The HTML text; links are relative to the folder `out`, so the folder can be moved as a whole."""
    return environment(out).get_template("page.html").render(
        study=study,
        sections=sections,
        headline=answer.headline(study),
        answers=answer.answers(study),
        rule=answer.RULE,
        figures=answer.key_figures(study),
        notices=notices(study),
        style=style(),
        subtitle=subtitle(study),
    )  # fmt: skip


def style() -> Markup:
    """The style sheet, to stand inside the page."""
    from markupsafe import Markup

    return Markup((_HERE / "page.css").read_text(encoding="utf-8"))


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


def environment(out: Path) -> Environment:
    """The templates of this folder, with our filters; links are relative to `out`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["glued"] = glued
    made.filters["link"] = lambda target: link(target, out)
    made.filters["drawn"] = lambda drawing: Markup(drawing.inline)  # our own SVG, escaped in svg.py
    return made
