"""Run a script of your own in several ranks of this machine, as torchrun would, with torch imported once.

    paceline run train.py --epochs 3 --ranks 4        --epochs 3 goes to the script
    paceline run --ranks 4 train.py -- --ranks 7      the script has an option --ranks of its own
    paceline run -m package.module --ranks 4          as python -m package.module

--ranks and --threads are Paceline's wherever they stand, up to a word `--` after the script; all that follows
this word goes to the script as it is. Every other word after the script's name goes to the script too.

The script finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and so on: init_process_group() just works. A rank
that fails ends all of them within 5 s, and its own traceback is shown first.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence

from paceline.cli import Parser
from paceline.errors import ConfigError
from paceline.launch.script import Script
from paceline.metrics.resources import threads_for

HELP = "run a script of your own in several ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module's name (python -m)")
    _add_own(parser)
    parser.add_argument("script", metavar="SCRIPT", help="the script's file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…", help="what the script is given")


def run(arguments: argparse.Namespace) -> int:
    from paceline.launch import environment, local
    from paceline.launch.script import import_torch, run_script, serve_store

    script, ranks, threads = resolve(arguments)
    if place := environment.current():
        raise ConfigError(
            f"{place.launcher} has started this process as rank {place.rank} of {place.size}; give it "
            f"{script.name} itself instead of `paceline run`"
        )
    script.check()
    import_torch()
    local.start(functools.partial(run_script, script), ranks, threads=threads, serve=serve_store)
    return 0


def resolve(arguments: argparse.Namespace) -> tuple[Script, int, int]:
    """(the script, ranks, threads of a rank), with our options found among the script's words."""
    own = Parser(prog="paceline run", add_help=False, argument_default=argparse.SUPPRESS)
    _add_own(own)
    found, words = taken_out(own, arguments.arguments, arguments)
    return (
        Script(found.script, tuple(words), found.module),
        found.ranks,
        found.threads or threads_for(found.ranks),
    )


def taken_out(
    own: Parser, words: Sequence[str], arguments: argparse.Namespace
) -> tuple[argparse.Namespace, list[str]]:
    """Our options that stand after the script, and the script's own words in their order."""
    cut = words.index("--") if "--" in words else len(words)
    found, rest = own.parse_known_args(words[:cut], arguments)
    return found, [*rest, *words[cut + 1 :]]


def _add_own(parser: argparse.ArgumentParser) -> None:
    suppressed = parser.argument_default is argparse.SUPPRESS
    parser.add_argument(
        "--ranks", type=count, metavar="N", help="processes to start (default: 1)",
        default=argparse.SUPPRESS if suppressed else 1,
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=count, metavar="N", help="threads of a rank (default: usable cores / ranks)",
        default=argparse.SUPPRESS if suppressed else None,
    )  # fmt: skip


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{text!r} is not a number of ranks or threads; give 1 or more")
    return int(text)
