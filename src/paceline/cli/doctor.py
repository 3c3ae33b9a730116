"""Is this machine ready? Cores, threads, shared memory, network, torch, MPI, SLURM, data, all-reduce.

    paceline doctor                five seconds of measuring; a line a thing: fine, or what to do
    paceline doctor --json         the same as one JSON object

Exit code 0: everything is fine or only advice. 1: something is broken.
"""

from __future__ import annotations

import argparse
import json

from paceline.cli._table import show
from paceline.errors import ConfigError

HELP = "look the machine over: each line says fine or what to do"

_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=_SECONDS,
        metavar="S",
        help=f"of measuring all-reduce (default: {_SECONDS:g}; 0: none)",
    )


def run(arguments: argparse.Namespace) -> int:
    from paceline.doctor.examine import examine
    from paceline.doctor.line import BROKEN

    lines, rows = examine(arguments.seconds)
    broken = any(line.state == BROKEN for line in lines)
    if arguments.json:
        found = {"ready": not broken, "lines": [line.as_json() for line in lines], "all_reduce": rows}
        print(json.dumps(found, indent=1))
    else:
        columns = ("what", "state", "found", "do")
        show(columns, [(line.what, line.state, line.found, line.do) for line in lines])
    return 1 if broken else 0


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 600:
        raise ConfigError(f"--seconds {text}: must be a number from 0 to 600")
    return value
