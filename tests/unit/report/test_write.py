"""The three files of a report: complete, escaped, self-contained, and made of the same numbers."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

from made_study import NOTICE, make_failed, make_run, make_study, summary
from paceline.cli import main
from paceline.report.content import PLAN
from paceline.report.write import write


@pytest.fixture(scope="session")
def report(study_folder, tmp_path_factory) -> Path:
    """The folder with the report of the made study, beside nothing else."""
    folder = shutil.copytree(study_folder, tmp_path_factory.mktemp("written") / "scaling")
    assert write([folder]) == folder / "report.html"
    return folder


class Page(HTMLParser):
    """Collects what the tests ask about, and that every element is closed."""

    EMPTY = frozenset({"meta", "link", "br", "img", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="session")
def html(report) -> str:
    return (report / "report.html").read_text(encoding="utf-8")


def test_the_page_is_whole_and_alone(html):
    page = Page(html)
    assert page.open == []
    assert len(html.encode()) < 1_000_000
    assert page.all("script") == page.all("link") == page.all("img") == page.all("iframe") == []
    assert "@import" not in html
    assert not re.search(r'(?:src|href)="(?:https?:)?//', html)
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(ids)) == len(ids)


def test_every_link_of_the_page_leads_to_a_file(html, report):
    links = [a["href"] for a in Page(html).all("a")]
    assert len(links) > 25
    for link in links:
        assert (report / unquote(link)).exists(), link


def test_every_section_is_there_in_order(html):
    positions = [html.index(f'<section id="{name}"') for name in ["answer", "warnings", "failed"]]
    positions += [html.index(f'<section id="{plan.id}"') for plan in PLAN] + [
        html.index('<section id="reproduce"')
    ]
    assert positions == sorted(positions)


def test_the_page_has_two_schemes_and_text_for_every_figure(html):
    page = Page(html)
    assert "prefers-color-scheme: dark" in html
    assert len(page.all("figure")) == len(page.all("figcaption")) == len(page.all("svg")) == 19
    assert all(figure["role"] == "img" for figure in page.all("svg"))
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", html))
    light, dark = html.split("prefers-color-scheme: dark", 1)
    for variable in used:
        assert f"{variable}:" in light
        assert f"{variable}:" in dark


def test_warnings_notices_failures_and_the_command_are_told(html):
    assert html.count(NOTICE) == 1
    assert "rank 3 was killed (signal 9): out of memory?" in html
    assert "out of memory &lt;4 GB&gt;" in html
    assert "<pre>paceline study studies/scaling.toml --out runs/scaling</pre>" in html


def test_markdown_says_the_same(report, html):
    text = (report / "report.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads == re.findall(r"<h2[^>]*>(.*?)</h2>", html)
    figures = re.findall(r"\]\((figures/[^)]+)\)", text)
    assert len(figures) == 19
    assert all((report / figure).is_file() for figure in figures)
    for line in text.splitlines():
        if line.startswith("| "):
            assert line.endswith(" |")
    for link in re.findall(r"\]\((cells/[^)]+)\)", text):
        assert (report / unquote(link)).exists()
    assert "2.11×" in text
    assert "[laws.json](laws.json)" in text
    assert "      RuntimeError: out of memory <4 GB>" in text


def test_the_notebook_is_valid_and_answers_unrun(report):
    book = nbformat.read(report / "report.ipynb", as_version=4)
    nbformat.validate(book)
    assert len({cell["id"] for cell in book.cells}) == len(book.cells)
    code = "\n".join(cell.source for cell in book.cells if cell.cell_type == "code")
    assert "study = read.load(['.'])" in code
    assert not re.search(r"\d\.\d", code), "a number is written into the code"
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/svg+xml" in output.data for output in shown) == 19
    assert "4 ranks train 2.11 times as fast" in shown[0].data["text/markdown"]


@pytest.mark.slow
def test_the_notebook_runs_from_its_folder_and_shows_the_same(report):
    from nbclient import NotebookClient

    stored = nbformat.read(report / "report.ipynb", as_version=4)
    book = nbformat.read(report / "report.ipynb", as_version=4)
    NotebookClient(book, timeout=60, resources={"metadata": {"path": str(report)}}).execute()
    for before, after in zip(stored.cells, book.cells, strict=True):
        if before.cell_type == "code":
            for one, two in zip(before.outputs, after.outputs, strict=True):
                assert {key: two.data[key] for key in one.data} == one.data, before.id


def test_text_of_others_is_text(tmp_path):
    made = summary("x", None, 1, 0) | {"name": "<script>alert(1)</script>", "warnings": ["odd: <b> | `c`"]}
    folder = make_run(tmp_path / "a&b", made)
    page = write([folder]).read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;b&gt;" in page
    assert "\\<b\\> \\| \\`c\\`" in (folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("scalings", "ranks", "repeats"),
    [(("strong",), (1, 2), 1), (("weak",), (2, 4), 2), (("strong",), (4,), 3), (("strong", "weak"), (1,), 1)],
)
def test_every_shape_of_study_has_a_report(tmp_path, scalings, ranks, repeats):
    folder = make_study(tmp_path / "study", scalings=scalings, ranks=ranks, repeats=repeats)
    Page(write([folder]).read_text(encoding="utf-8"))
    assert (folder / "report.ipynb").is_file()


def test_only_failures_are_a_report_too(tmp_path):
    page = write([make_failed(tmp_path / "run")]).read_text(encoding="utf-8")
    assert "rank 3 was killed" in page


def test_a_bare_summary_is_enough(tmp_path):
    folder = make_run(tmp_path / "run", summary("run", None, 1, 0))
    for curve in folder.glob("*.npy"):
        curve.unlink()
    bare = {"schema": 1, "strategy": "single", "ranks": 1, "train_seconds": 3.0, "samples_per_second": 10.0}
    (folder / "summary.json").write_text(json.dumps(bare))
    assert "3.00 s" in write([folder]).read_text(encoding="utf-8")


def test_the_command_merges_folders_and_prints_the_page(tmp_path, capsys):
    one, two = (make_run(tmp_path / f"p{p}", summary(f"p{p}", "strong", p, 0)) for p in (1, 2))
    assert main(["report", str(one), str(two), "--out", str(tmp_path / "both")]) == 0
    printed = Path(capsys.readouterr().out.strip())
    assert printed == tmp_path / "both" / "report.html"
    assert "../p2/summary.json" in printed.read_text(encoding="utf-8")
    assert (
        "['../p1', '../p2']"
        in json.loads((tmp_path / "both" / "report.ipynb").read_text())["cells"][1]["source"]
    )
    assert (one / "laws.json").is_file()


def test_mistakes_are_one_line_and_exit_code_2(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "no folder" in said[0]
    assert not list(tmp_path.iterdir())
