"""The documentation against the program: fields, files, options, names, links. What drifts, fails here."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from paceline import cli, errors
from paceline.config import RunConfig, merged
from paceline.config.study import StudyConfig
from paceline.registry import COLLECTIVES, DATA_SETS, MODELS, STRATEGIES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "paceline"
PAGES = sorted(
    path for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")) if "_build" not in path.relative_to(ROOT).parts
)
SMALL = ("--model", "mlp", "--model-options", "hidden=8", "--threads", "1")


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def section(path: Path, title: str) -> str:
    """The text below a heading, up to the next heading of its level or above."""
    before, found, after = path.read_text(encoding="utf-8").partition(f"# {title}\n")
    assert found, f"{path} has no heading {title!r}"
    level = len(before) - len(before.rstrip("#")) + 1
    return re.split(rf"^#{{1,{level}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def fields(text: str) -> set[str]:
    """The names in the first column of every table."""
    rows = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


# What a run and a study really leave behind


@pytest.fixture(scope="module")
def made(zygote, tmp_path_factory) -> Path:
    """A folder with a run of two ranks (`run`), a failed one (`failed`) and a study of one cell (`study`)."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "bad.py").write_text(
        "import os\n"
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(784, 10)\n"
        "    def forward(self, x): raise FloatingPointError('planted')\n"
    )
    study = ("study", "--ranks", 1, "--scaling", "strong", "--repeats", 1, "--epochs", 1, "--out", "study")
    for words, code in [
        (("train", *SMALL, "--ranks", 2, "--epochs", 1, "--out", "run"), 0),
        (("train", "--model", "bad:Net", "--out", "failed"), 1),
        ((*study, *SMALL), 0),
    ]:
        done = zygote.paceline(*words, cwd=folder)
        assert done.code == code, done.err
    return folder


def test_every_file_of_a_run_is_documented(made):
    documented = fields(section(DOCS / "reference/run-folder.md", "Files of a run"))
    patterns = [re.escape(name).replace("<rank>", r"\d+").replace("<…>", ".*") for name in documented]
    names = [path.name for path in (made / "run").iterdir()]
    for name in names:
        assert any(re.fullmatch(pattern, name) for pattern in patterns), name
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in names), pattern


def test_every_file_of_a_study_is_documented(made):
    documented = fields(section(DOCS / "reference/run-folder.md", "Files of a study"))
    names = {name.partition("/")[0] for name in documented}
    assert {path.name for path in (made / "study").iterdir()} == names


@pytest.mark.parametrize(
    ("title", "file"),
    [("Fields of summary.json", "run/summary.json"), ("Fields of study.json", "study/study.json")],
)
def test_the_fields_of_a_file_are_the_documented_ones(made, title, file):
    documented = fields(section(DOCS / "reference/run-folder.md", title))
    assert documented == set(json.loads((made / file).read_text()))


def test_the_fields_of_cells_groups_and_failures_are_the_documented_ones(made):
    page = DOCS / "reference/run-folder.md"
    group = json.loads((made / "study/laws.json").read_text())["groups"][0]
    assert fields(section(page, "Fields of a group in laws.json")) == set(group)
    cells = section(page, "Fields of study.json").partition("| `cells` |")[2].partition("\n")[0]
    cell = json.loads((made / "study/study.json").read_text())["cells"][0]
    assert set(re.findall(r"`(\w+)`", cells)) - {"done", "failed", "missing"} == set(cell)
    text = section(page, "Files of a run").partition("`failed.json`")[2]
    for key in json.loads((made / "failed/failed.json").read_text()):
        assert f"`{key}`" in text


def test_every_line_of_a_journal_is_documented(made):
    page = DOCS / "reference/journal.md"
    lines = [
        json.loads(line)
        for rank in (0, 1)
        for line in (made / f"run/journal-{rank}.jsonl").read_text().splitlines()
    ]
    kinds = {line["kind"] for line in lines}
    assert kinds | {"note", "lost"} == set(re.findall(r"^## (\w+)$", page.read_text(), re.MULTILINE))
    for kind in kinds:
        found = set().union(*(line for line in lines if line["kind"] == kind)) - {"kind"}
        assert fields(section(page, kind)) == found, kind


# What the pages say of the program


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_tables_name_every_option_key_variant_and_error(generate):
    text = {name: make() for name, make in generate.GENERATED.items()}
    assert {f"## paceline {command}" for command in cli.commands()} <= set(text["options"].splitlines())
    assert "`--ranks N`" in text["options"] and "### paceline data fetch" in text["options"]
    assert fields(text["run_keys"]) >= set(RunConfig.__dataclass_fields__)
    assert fields(text["study_keys"]) >= set(StudyConfig.__dataclass_fields__)
    for kind, made in [(STRATEGIES, "strategies"), (COLLECTIVES, "collectives"), (DATA_SETS, "data_sets")]:
        assert fields(text[made]) >= set(kind.names())
    assert re.findall(r"^### (\w+)$", text["models"], re.MULTILINE) == MODELS.names()
    for name, value in vars(errors).items():
        assert (
            not isinstance(value, type)
            or value.__module__ != errors.__name__
            or f"`{name}`" in text["error_classes"]
        )
    assert "`Incomplete` | 3" in text["error_classes"]


def test_every_mark_is_one_that_can_be_generated(generate):
    marks = [mark for path in PAGES for mark in re.findall(r"<!-- generated: (\w+) -->", path.read_text())]
    assert sorted(marks) == sorted(generate.GENERATED)


def commands_of(path: Path) -> list[list[str]]:
    """The `paceline …` and `torchrun … -m paceline …` lines of a page's shell blocks, without comments."""
    lines = [line for block in blocks(path, "sh") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if "…" not in line]
    found = [line[line.index("paceline") + 1 :] for line in words if "paceline" in line]
    return [line for line in found if line and "--help" not in line]


SHELL = [(path, words) for path in PAGES for words in commands_of(path)]


@pytest.mark.parametrize(
    ("path", "words"), SHELL, ids=lambda v: v.name if isinstance(v, Path) else " ".join(v)[:40]
)
def test_every_command_shown_is_one_that_the_program_takes(path, words):
    module = cli.load(words[0])
    parser = cli.Parser(prog=words[0])
    module.add_arguments(parser)
    assert isinstance(parser.parse_everything(words[1:]), argparse.Namespace)
    for word in words:
        if word.startswith("studies/"):
            assert (ROOT / word).is_file()


@pytest.mark.parametrize("path", [p for p in PAGES if blocks(p, "toml")], ids=page_id)
def test_every_file_shown_is_one_that_the_program_reads(path):
    for block in blocks(path, "toml"):
        values = tomllib.loads(block)
        merged(StudyConfig if "run" in values else RunConfig, values)
        merged(RunConfig, values.get("run", {}))


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_lead_somewhere(path):
    for target in re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    ):
        if not target.startswith(("http", "#")):
            assert (path.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("folder", ["src", "benchmarks", "tests", "studies"])
def test_pages_named_in_comments_and_docstrings_exist(folder):
    names = ("*.py", "*.c", "*.toml")
    for path in (path for name in names for path in (ROOT / folder).rglob(name)):
        text = path.read_text(encoding="utf-8")
        for page in re.findall(r"docs/[\w/.-]+?\.md", text):
            assert (ROOT / page).is_file(), f"{path} names {page}"
        for note in re.findall(r"decisions/(\d{4})", text):
            assert list((DOCS / "decisions").glob(f"{note}-*.md")), f"{path} names decision {note}"


def test_every_decision_is_in_the_index():
    index = (DOCS / "decisions/index.md").read_text()
    assert re.findall(r"^(\d{4}-\S+)$", index, re.M) == sorted(
        path.stem for path in (DOCS / "decisions").glob("[0-9]*.md")
    )


def test_the_makefile_has_every_target_shown():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {
        name
        for path in PAGES
        for block in blocks(path, "sh")
        for name in re.findall(r"^make (\w+)", block, re.M)
    }
    assert shown and shown <= targets


# README, CITATION, CHANGELOG


def tree_of_readme() -> dict[str, str]:
    """Path below src/paceline -> remark, from the indented tree."""
    lines = (
        (ROOT / "README.md").read_text().partition("\nsrc/paceline/\n")[2].partition("\n```")[0].splitlines()
    )
    found, folders = {}, []
    for line in lines:
        name, remark = re.fullmatch(r" +(\S+) {2,}(\S.*)", line).groups()
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth - 1 :] = [name]
        if not name.endswith("/"):
            found["".join(folders)] = remark
    return found


def test_the_tree_in_the_readme_is_the_source_tree():
    tree = tree_of_readme()
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.is_file()]
    assert set(tree) == {
        str(file) for file in files if "__pycache__" not in file.parts and file.suffix != ".so"
    }
    assert all(len(remark) <= 60 for remark in tree.values())


def test_citation_and_changelog():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0" and citation["authors"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert {"title", "message"} <= set(citation)
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_has_its_reason():
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.match(r"[a-z0-9]+", need)[0] for need in needed}
    page = (DOCS / "decisions/0001-dependencies.md").read_text().partition("**Not taken.**")[0]
    assert set(re.findall(r"^\| (\w+) \|", page, re.MULTILINE)) - {"package"} == names
