"""Run a grid of runs, one after the other, and make its report: what did another process buy?

Without a file: the quick study on the embedded digits, complete in under 3 minutes on 2 cores. Options
change or replace what the file says. A study that was interrupted goes on with the cells that are missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from paceline.cli._options import add_record, given
from paceline.config import RunConfig, merged, read_toml
from paceline.config.study import DECIDED_BY_GRID, StudyConfig
from paceline.errors import ConfigError, Incomplete

HELP = "run a grid of runs and make its report"
QUICK = Path(__file__).parent.parent / "study" / "embedded" / "quick.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.toml", help="a study (see studies/)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the study's folder (default: runs/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="show the cells and start nothing")
    add_record(parser, StudyConfig, leave_out=["run", "variants"])
    add_record(parser, RunConfig, leave_out=DECIDED_BY_GRID)


def run(arguments: argparse.Namespace) -> int:
    study = resolve(arguments)
    folder = arguments.out or Path("runs") / study.name
    from paceline.study.grid import expand
    from paceline.study.run import run_study

    cells = expand(study, source=str(arguments.file or "study"))
    if arguments.dry_run:
        print("\n".join(cell.id for cell in cells))
        return 0
    from paceline.cli._study_progress import StudyProgress
    from paceline.cli.report import build
    from paceline.train.run import command_line

    index = run_study(study, cells, folder, command_line(), StudyProgress(folder))
    failed = [cell["id"] for cell in index["cells"] if cell["status"] != "done"]
    print(build([folder], folder))
    if failed:
        raise Incomplete(f"{len(failed)} of {len(cells)} cells failed ({failed[0]}, …); the report says why")
    return 0


def resolve(arguments: argparse.Namespace) -> StudyConfig:
    """The study from its file, changed by what the command line names."""
    axes = given(arguments, StudyConfig)
    shared = {k: v for k, v in given(arguments, RunConfig).items() if k not in DECIDED_BY_GRID}
    path = arguments.file or QUICK
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder; give a .toml file, or --out {path} to choose where results go"
        )
    base: dict[str, Any] = read_toml(path)
    inherited = base.get("run", {})
    run = {**inherited, **shared} if isinstance(inherited, dict) else inherited
    return merged(StudyConfig, base, axes, {"run": run}, source=str(path))
