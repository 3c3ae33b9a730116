"""Writes a report: report.html, report.md, report.ipynb and figures/*.svg in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.atomic import write_text
from paceline.report import markdown, notebook, page
from paceline.report.content import sections
from paceline.report.read import load


def write(folders: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Make the report of these study or run folders in `out` (default: the first of them); gives report.html.

    Speed-ups, fits and verdicts are read from the folders' laws.json, which has to be there before.
    """
    study = load(folders)
    target = Path(out if out is not None else folders[0]).resolve()
    made = sections(study)
    (target / "figures").mkdir(parents=True, exist_ok=True)
    for drawing in (drawing for section in made for drawing in section.drawings):
        write_text(target / "figures" / f"{drawing.name}.svg", drawing.standalone + "\n")
    write_text(target / "report.md", markdown.render(study, made, target))
    write_text(target / "report.ipynb", notebook.render(study, made, target))
    write_text(target / "report.html", page.render(study, made, target))
    return target / "report.html"
