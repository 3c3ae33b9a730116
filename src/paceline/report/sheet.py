"""A sheet: title, question, sections, as one HTML page and as Markdown, for measurements that are not runs.

sections ──► report.html (figures inside) · report.md · figures/*.svg · sections.md (without title, for docs)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.atomic import write_text
from paceline.report import markdown, page
from paceline.report.content import Section


def write(
    folder: Path, title: str, question: str, sections: Sequence[Section], commands: Sequence[str]
) -> Path:
    """Make the sheet in `folder`; gives the path of its page."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for drawing in (drawing for section in sections for drawing in section.drawings):
        write_text(folder / "figures" / f"{drawing.name}.svg", drawing.standalone + "\n")
    blocks = [block for section in sections for block in markdown.section_blocks(section, folder) if block]
    write_text(folder / "sections.md", "\n\n".join(blocks) + "\n")
    head = [f"# {markdown.plain(title)}", markdown.plain(question)]
    foot = ["## Reproduce", "\n".join(["```sh", *commands, "```"])] if commands else []
    write_text(folder / "report.md", "\n\n".join([*head, *blocks, *foot]) + "\n")
    rendered = (
        page.environment(folder)
        .get_template("sheet.html")
        .render(title=title, question=question, sections=sections, commands=commands, style=page.style())
    )
    write_text(folder / "report.html", rendered)
    return folder / "report.html"
