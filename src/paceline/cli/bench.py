"""Measure a part of Paceline against its opponents, in turns, and write a table, JSON and a report page.

    paceline bench allreduce --ranks 2,4 --sizes 1000,100000 --json rows.json
    paceline bench allreduce --from rows.json --out runs/bench     table and figures again, nothing measured

Every thing that can be measured has options of its own: `paceline bench THING --help`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import ModuleType

from paceline import bench
from paceline.cli import Action
from paceline.cli._table import show
from paceline.errors import ConfigError

HELP = "measure collectives and other parts against their opponents, in turns"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    things = parser.add_subparsers(dest="thing", metavar="THING", required=True, parser_class=Action)
    for name in bench.things():
        module = bench.load(name)
        added = things.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(added)
        output = added.add_argument_group("output")
        output.add_argument("--json", type=Path, metavar="FILE", help="write the rows as a JSON list")
        output.add_argument(
            "--out", type=Path, metavar="DIR", help=f"folder of the report page (default: runs/bench-{name})"
        )
        output.add_argument(
            "--from",
            type=Path,
            metavar="FILE",
            dest="source",
            help="rows measured before, as --json wrote them",
        )


def run(arguments: argparse.Namespace) -> int:
    from paceline.atomic import write_json
    from paceline.report.sheet import write

    module = bench.load(arguments.thing)
    rows = _read(arguments.source) if arguments.source else _measured(module, arguments)
    sections = module.sections(rows)
    for table in [table for section in sections for table in section.tables][:1]:
        show(table.columns, [[cell.text for cell in row] for row in table.rows], table.title)
    if arguments.json:
        write_json(arguments.json, rows)
    out = arguments.out or Path("runs") / f"bench-{arguments.thing}"
    print(write(out, module.TITLE, module.QUESTION, sections, _commands(rows)))
    return 0


def _measured(module: ModuleType, arguments: argparse.Namespace) -> list[bench.Row]:
    """Measured now; every row names the command, the machine and the commit."""
    from paceline.bench._progress import BenchProgress
    from paceline.metrics import resources
    from paceline.train.run import command_line

    with BenchProgress() as progress:
        rows: list[bench.Row] = module.measure(arguments, progress)
    about = {
        "command": command_line(),
        "machine": resources.machine(),
        "versions": resources.versions(),
        "commit": resources.commit(),
    }
    return [row | about for row in rows]


def _read(path: Path) -> list[bench.Row]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--from {path}: cannot be read as JSON ({error})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"--from {path}: is not a list of rows; give a file that --json wrote")
    return rows


def _commands(rows: list[bench.Row]) -> list[str]:
    return sorted({str(row["command"]) for row in rows if "command" in row})
