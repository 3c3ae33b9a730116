"""How the documentation is built: Markdown (MyST) to HTML with the furo theme, offline."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

import paceline

sys.path.insert(0, str(Path(__file__).parent))
import generate

project = "Paceline"
author = "The Paceline authors"
project_copyright = "The Paceline authors, Apache-2.0"
release = paceline.__version__
extensions = ["myst_parser"]
exclude_patterns = ["_build", "**/_*.md"]  # parts that a page includes
highlight_language = "none"
smartquotes = False  # it would turn --ranks into a dash
nitpicky = True
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Paceline"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["paceline.css"]


def setup(app: Sphinx) -> None:
    """Pages with a mark get what is made from the code, and are read anew in every build."""
    app.connect("source-read", _expand)
    app.connect("env-get-outdated", _marked)


def _expand(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = generate.expand(source[0])


def _marked(app: Sphinx, *_: object) -> list[str]:
    pages = {name: Path(app.env.doc2path(name)) for name in app.project.docnames}
    return [name for name, path in pages.items() if "<!-- generated:" in path.read_text(encoding="utf-8")]
