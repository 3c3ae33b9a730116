"""Is a script's data parallelism right? Runs it in a few ranks for a few steps and says what is wrong.

    paceline check train.py                                 2 ranks, 20 steps
    paceline check train.py --ranks 4 --json found.json -- --epochs 3 --data mnist

What follows `--` goes to the script. Epochs are cut short so that two and the evaluation are seen; the
script's own output is shown. Each finding has its evidence and what to do; all of them are listed in
docs/how-to/check-a-script.md. Exit code 0: nothing found. 1: findings, or the script failed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli import Parser
from paceline.cli.run import count, taken_out
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.check.run import Checked

HELP = "observe a script for a few steps and say what is wrong with its parallelism"

_STEPS, _TIMEOUT = 20, 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module's name (python -m)")
    _add_own(parser, ranks=2, threads=None, steps=_STEPS, timeout=_TIMEOUT, json=None)
    parser.add_argument("script", metavar="SCRIPT", help="the script's file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…", help="what the script is given")


def run(arguments: argparse.Namespace) -> int:
    from paceline.atomic import write_json
    from paceline.check.run import check
    from paceline.launch import environment
    from paceline.launch.script import Script
    from paceline.metrics.resources import threads_for

    own = Parser(prog="paceline check", add_help=False, argument_default=argparse.SUPPRESS)
    _add_own(own)
    found, words = taken_out(own, arguments.arguments, arguments)
    if place := environment.current():
        raise ConfigError(
            f"{place.launcher} has started this process as rank {place.rank} of {place.size}; "
            "`paceline check` starts the ranks itself: run it once, from a shell"
        )
    if found.ranks < 2:
        raise ConfigError(f"--ranks {found.ranks}: one rank agrees with itself; give 2 or more")
    checked = check(
        Script(found.script, tuple(words), found.module),
        ranks=found.ranks,
        steps=found.steps,
        threads=found.threads or threads_for(found.ranks),
        timeout=found.timeout,
    )
    if found.json:
        write_json(found.json, checked.as_json())
    _show(checked)
    if checked.failure is not None:
        raise checked.failure
    return 1 if checked.findings else 0


def _show(checked: Checked) -> None:
    """For people; without colour where it is piped."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for finding in checked.findings:
        console.print(f"\n{finding.title}  [{finding.name}]", style="bold red")
        console.print(f"  seen  {finding.evidence}")
        console.print(f"  do    {finding.fix}")
    for line in checked.unseen if checked.steps else ():
        console.print(f"not seen  {line}", style="dim")
    if checked.findings or checked.steps:
        what = f"{len(checked.findings)} found" if checked.findings else "nothing wrong found"
        console.print(f"\n{what} in {checked.steps} steps of {checked.ranks} ranks", style="bold")


def _add_own(parser: argparse.ArgumentParser, **defaults: object) -> None:
    def option(name: str, kind: object, metavar: str, help: str) -> None:
        default = defaults.get(name, argparse.SUPPRESS)
        parser.add_argument(f"--{name}", type=kind, metavar=metavar, help=help, default=default)  # type: ignore[arg-type]

    option("ranks", count, "N", "processes to start (default: 2)")
    option("threads", count, "N", "threads of a rank (default: usable cores / ranks)")
    option("steps", count, "N", f"optimizer steps to observe (default: {_STEPS})")
    option("timeout", _seconds, "S", f"the script is ended after so many seconds (default: {_TIMEOUT:g})")
    option("json", Path, "FILE", "write the findings as JSON")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"--timeout {text}: must be a positive number of seconds")
    return value
