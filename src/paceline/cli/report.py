"""Write the report of a study or of runs: report.html, report.md, report.ipynb and figures.

    paceline report runs/quick-study          a study
    paceline report runs/a runs/b --out ab    several folders as one report

The numbers come from the folders alone, so a report can be made again at any time, and anywhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

HELP = "write the report of a study or of runs (HTML, Markdown, notebook)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folder of a study or of a run")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write here instead of into the first folder")


def run(arguments: argparse.Namespace) -> int:
    print(build(arguments.folders, arguments.out))
    return 0


def build(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Analyse the folders anew (laws.json), then write their report; gives the path of the page."""
    from paceline.report.read import find
    from paceline.report.write import write
    from paceline.study.groups import write_laws

    find(folders)  # complain before anything is written
    for folder in folders:
        write_laws(folder)
    return write(folders, out)
