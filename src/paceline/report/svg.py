"""A matplotlib figure as SVG text, in two dresses.

    inline      in the HTML page: colours become CSS variables (light and dark)
    standalone  a file beside report.md, or a notebook's output: mid-tones, legible on white and on black

Text stays text (no glyph outlines), so a figure is 10–20 kB. Both come from one drawing; ids carry the
figure's name, so that many figures live in one page.
"""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Every colour of a figure is one of these; the key is also the name of the CSS variable.
# The series are blue, orange, green, purple, red, brown: told apart with any colour vision, and by marker.
INK = "#767676"
GRID = "#8c8c8c"
PAPER = "#fdfdfd"
SERIES = ("#2f7fc1", "#cf7a05", "#159a78", "#a866b8", "#d0524f", "#8a7a5c")
VARIABLES = {"ink": INK, "grid": GRID, "panel": PAPER} | {f"series-{i}": c for i, c in enumerate(SERIES, 1)}

_NOISE = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL)
_IDS = re.compile(r' id="([^"]+)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^)"]+)')
_FONT = re.compile(r"(font(?:-family)?: [^;\"']*)'DejaVu Sans'[^;\"]*")
_OPENING = re.compile(r"<svg[^>]*>")


def draw(figure: Figure, name: str) -> str:
    """The bare `<svg>` element: deterministic, without scripts, comments and unused ids."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = _NOISE.sub("", buffer.getvalue())
    text = text[text.index("<svg") :]
    used = {match[1] for match in _REFERENCE.findall(text)}
    text = _IDS.sub(lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    text = _REFERENCE.sub(lambda m: f"{m[1]}{name}-{m[2]}", text)
    text = _FONT.sub(r"\1sans-serif", text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def inline(text: str, name: str, title: str, description: str) -> str:
    """For the page: scales with its box, takes the page's colours, says what it shows."""
    for variable, colour in VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    return _opened(text, name, title, description, size="")


def standalone(text: str, name: str, title: str, description: str) -> str:
    """For a file: has a size of its own; hollow markers are see-through."""
    width, height = (float(x) for x in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)[0])
    size = f' width="{width * 1.5:.0f}" height="{height * 1.5:.0f}"'
    return _opened(text.replace(PAPER, "none"), name, title, description, size)


def _opened(text: str, name: str, title: str, description: str, size: str) -> str:
    """Replace the opening tag by one with a role and alternative text."""
    box = re.findall(r'viewBox="[^"]+"', text)[0]
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box}{size} '
        f'role="img" '
        f'aria-labelledby="{name}-title {name}-desc" stroke-linejoin="round" font-family="sans-serif">\n'
        f'<title id="{name}-title">{html.escape(title)}</title>\n'
        f'<desc id="{name}-desc">{html.escape(description)}</desc>'
    )
    return _OPENING.sub(lambda _: opening, text, count=1)
