"""Train one model with one or many processes, and leave a folder that says what happened.

Options may also stand in a TOML file (--config), under the same names with underscores; the command line
wins. The same command runs under torchrun: torchrun --nproc_per_node N -m paceline train …
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from paceline.cli._options import add_record, given
from paceline.config import RunConfig, merged, read_toml

HELP = "train one model, with one or many processes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="read options from this file")
    add_record(parser, RunConfig)


def run(arguments: argparse.Namespace) -> int:
    from paceline.launch.environment import command_started, current

    layers = [read_toml(arguments.config)] if arguments.config else []
    layers.append(given(arguments, RunConfig))
    config = merged(RunConfig, *layers, source=str(arguments.config or "options"))

    from paceline.train.run import command_line, execute

    folder = execute(
        config,
        started=command_started(),
        command=command_line(),
        ranks_given=any("ranks" in layer for layer in layers),
    )
    place = current()
    if place is None or place.rank == 0:
        print("\n".join(closing_lines(folder)))
    return 0


def closing_lines(folder: Path) -> list[str]:
    """What the run came to, and where to look."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    memory = sum(filter(None, summary["proportional_memory_bytes"])) / 2**20
    share = {name: summary[f"{name}_seconds"] / max(1e-9, summary["train_seconds"]) for name in _SHARES}
    lines = [
        (
            f"test accuracy {summary['test_accuracy']:.2%}, train {summary['train_accuracy']:.2%} "
            f"({summary['train_accuracy_mode']})"
        ),
        (
            f"trained {summary['train_seconds']:.2f} s ({summary['samples_per_second']:,.0f} samples/s), "
            f"evaluated {summary['evaluate_seconds']:.2f} s, started in {summary['startup_seconds']:.2f} s"
        ),
        "time: " + ", ".join(f"{name} {part:.0%}" for name, part in share.items()),
        f"memory of all ranks {memory:,.0f} MiB",
    ]
    if summary["target"] is not None:
        reached = summary["seconds_to_target"]
        ending = f"reached after {reached:.2f} s of training" if reached else "not reached"
        lines.append(f"target {summary['target']:.2%} {ending}")
    if not summary["data_verified"]:
        lines.append(f"data not verified: {summary['data_notice']}")
    return [*lines, str(folder / "summary.json")]


_SHARES = ("data", "compute", "communicate", "wait", "update", "other")
