"""What the source tree promises: who may import whom, how long a file and a function may be, which names are
public, and that nothing outside a variant's own file names it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import paceline
from paceline.registry import COLLECTIVES, DATA_SETS, MODELS, STRATEGIES, camel

SOURCE = Path(paceline.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
LEVELS = {
    "errors": 0,
    **dict.fromkeys(("config", "registry", "atomic", "typed", "metrics", "data", "models", "launch"), 1),
    "comm": 2,
    **dict.fromkeys(("strategies", "nn", "backend"), 3),
    "train": 4,
    **dict.fromkeys(("library", "study", "report"), 5),
    **dict.fromkeys(("bench", "check"), 6),
    "doctor": 7,
    "cli": 8,
    **dict.fromkeys(("__main__", "__init__"), 9),
}
# Single files of level 1 that any package of level 1 may use.
FOUNDATIONS = {"registry", "atomic", "typed"}
# In bench and check the files that ranks run (_name.py) import torch; those that the command line asks do not.
WITHOUT_TORCH = (
    "config",
    "metrics",
    "report",
    "launch",
    "cli",
    "doctor",
    "registry",
    "errors",
    "atomic",
    "typed",
)
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}


def unit_of(path: Path) -> str:
    """The package or top-level module a file belongs to."""
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def without_torch(path: Path) -> bool:
    return unit_of(path) in WITHOUT_TORCH or (unit_of(path) in ("bench", "check") and path.name[0] != "_")


def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, inside a function or a type-checking block?) for everything a file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    found = []
    for node in ast.walk(tree):
        later = id(node) not in top
        if isinstance(node, ast.Import):
            found += [(alias.name, later) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append((node.module or "", later))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_only_lower_levels_and_its_own_files(path):
    own = unit_of(path)
    for module, _ in imports(path):
        parts = module.split(".")
        if parts[0] != "paceline" or len(parts) == 1:
            continue
        other = parts[1]
        assert other in LEVELS, f"{path.name} imports {module}, whose level is not written down"
        allowed = other == own or LEVELS[other] < LEVELS[own]
        allowed |= other in FOUNDATIONS and LEVELS[own] >= 1
        assert allowed, f"{own} (level {LEVELS[own]}) imports {module} (level {LEVELS[other]})"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_sizes(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300, f"{len(lines)} lines; split the file where it holds two things"
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 40, f"{node.name} has {length} lines; 40 are allowed"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert path.stem not in FORBIDDEN_NAMES
    assert not text.strip() or ast.get_docstring(ast.parse(text)), "no docstring"


@pytest.mark.parametrize("path", [p for p in FILES if without_torch(p)], ids=lambda p: p.name)
def test_no_torch_at_import(path):
    for module, later in imports(path):
        heavy = module.split(".")[0] == "torch"
        assert later or not heavy, f"{path} imports {module} when it is imported"


@pytest.mark.parametrize(
    "statement",
    ["import paceline; paceline.__all__", "import paceline.cli", "import paceline.config, paceline.metrics.summary, paceline.launch.local",
     "import paceline.data", "from paceline.cli import dispatch; dispatch(['train', '--help'])"],
)  # fmt: skip
def test_these_do_not_load_torch(statement):
    """`--help` and reports must not wait a second for torch."""
    code = (
        "import sys\n"
        f"try:\n    exec({statement!r})\nexcept SystemExit:\n    pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode() or "torch was imported"


@pytest.mark.parametrize("registry", [COLLECTIVES, DATA_SETS, MODELS, STRATEGIES], ids=lambda r: r.kind)
def test_a_variant_is_a_file_and_a_class_of_the_same_name(registry):
    assert registry.names()
    for name in registry.names():
        assert registry.load(name).__name__ == camel(name)


@pytest.mark.parametrize("registry", [COLLECTIVES, STRATEGIES], ids=lambda r: r.kind)
def test_nobody_outside_its_own_file_names_a_variant(registry):
    classes = {camel(name): name for name in registry.names()}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
            if name in classes:
                assert path.stem == classes[name], f"{path} names {name}"
            if isinstance(node, ast.ImportFrom) and node.module:
                stem = node.module.rpartition(".")[2]
                inside = registry.folder.replace("/", ".") in node.module
                assert not (inside and stem in classes.values()), f"{path} imports {node.module}"


def test_every_file_that_is_no_python_is_shipped():
    """`pip install .` takes what pyproject.toml lists: a template that is missing there is missing for users."""
    settings = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = settings["setuptools"]["package-data"]["paceline"]
    built = {Path(name) for module in settings["setuptools"]["ext-modules"] for name in module["sources"]}
    for path in SOURCE.rglob("*"):
        if path.is_dir() or path.suffix in (".py", ".pyc", ".so"):
            continue
        inside = path.relative_to(SOURCE)
        assert (
            any(inside.match(pattern) for pattern in patterns) or path.relative_to(SOURCE.parents[1]) in built
        ), path


def test_public_names_are_the_listed_ones():
    public = [name for name in dir(paceline) if not name.startswith("_")]
    modules = {name for name in public if isinstance(getattr(paceline, name), type(sys))}
    assert set(public) - modules <= set(paceline.__all__)
    for name in paceline.__all__:
        assert getattr(paceline, name) is not None


@pytest.mark.parametrize("package", ["data", "config", "comm.collectives", "strategies"])
def test_packages_export_what_they_say(package):
    module = importlib.import_module(f"paceline.{package}")
    for name in module.__all__:
        assert getattr(module, name) is not None
