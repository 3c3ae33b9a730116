"""The command line: one file a command, found by existing, imported only when it is asked for.

    paceline COMMAND …
      └─ cli/<command>.py      HELP, add_arguments(parser), run(arguments) -> exit code

A user's mistake is one line on standard error and exit code 2; a rank's failure shows that rank's own
traceback first; anything else is a bug and keeps its traceback. Nothing here imports torch, so `--help`
answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from paceline.errors import ConfigError, PacelineError, RankFailed, UsageError, did_you_mean

_PROLOGUE = "Train one PyTorch model with many processes and see honestly what it bought."
_EPILOGUE = "`paceline COMMAND --help` explains each. Start with: paceline study"


class Parser(argparse.ArgumentParser):
    """argparse whose every complaint is one line with a suggestion."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", Formatter)
        super().__init__(**settings)  # type: ignore[arg-type]

    @property
    def _command(self) -> str:
        """The line begins with `paceline:` anyway."""
        return self.prog.removeprefix("paceline ")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[0] if action.option_strings else action.metavar
            hint = did_you_mean(str(value), map(str, action.choices))
            raise ConfigError(f"{self._command}: {name} cannot be {value!r}; {hint}")

    def parse_everything(self, words: Sequence[str]) -> argparse.Namespace:
        """Like parse_args, but an unknown option is answered with the nearest known one."""
        found, rest = self.parse_known_args(words)
        self.refuse(rest)
        return found

    def refuse(self, rest: Sequence[str]) -> None:
        """One line for the words that nothing asked for."""
        for word in rest:
            if word.startswith("-"):
                name = word.partition("=")[0]
                known = [o for o in self._option_string_actions if o.startswith("--")]
                raise ConfigError(f"{self._command}: no option {name!r}; {_nearest(name, known, self.prog)}")
        if rest:
            raise ConfigError(f"{self._command}: did not expect {rest[0]!r} (see {self.prog} --help)")


class Action(Parser):
    """The parser of a command's action: it answers for its own unknown options."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        self.refuse(rest)
        return found, rest


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help with the option column wide enough for our longest names."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=min(100, _columns()))


def _columns() -> int:
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 100


def _nearest(word: str, known: Sequence[str], prog: str) -> str:
    hint = did_you_mean(word, known)
    return hint if hint.startswith("did you mean") else f"see {prog} --help"


def commands() -> list[str]:
    """`sequential_print.py` is the command `sequential-print`."""
    return sorted(
        p.stem.replace("_", "-") for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_")
    )


def load(command: str) -> ModuleType:
    """The module behind a command."""
    return importlib.import_module(f"paceline.cli.{command.replace('-', '_')}")


def usage() -> str:
    """What `paceline` alone prints: every command with its one line."""
    lines = [f"  {name:<18}{load(name).HELP}" for name in commands()]
    return "\n".join(["usage: paceline COMMAND …", "", _PROLOGUE, "", *lines, "", _EPILOGUE])


def dispatch(words: Sequence[str]) -> int:
    """Run one command line; errors come out as exceptions."""
    from paceline import __version__

    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"paceline {__version__}")
        return 0
    if words[0] not in commands():
        raise ConfigError(f"no command {words[0]!r}; {did_you_mean(words[0], commands())}")
    module = load(words[0])
    prog = f"paceline {words[0]}"
    parser = Parser(prog=prog, description=module.__doc__)
    module.add_arguments(parser)
    if len(parser.format_usage()) > 300:
        parser.usage = f"{prog} [options]"
    return int(module.run(parser.parse_everything(words[1:])))


def speaks() -> bool:
    """Of the ranks of one node, which all find the same mistake, one says it."""
    from paceline.launch.environment import current

    try:
        place = current()
    except PacelineError:
        return True
    return place is None or place.local_rank == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `paceline`: every PacelineError becomes its line and its exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: its idle pool would be forked
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return dispatch(words)
    except RankFailed as error:
        if error.details:
            print(error.details.rstrip(), file=sys.stderr)
        print(f"paceline: {error}", file=sys.stderr)
        return error.exit_code
    except PacelineError as error:
        if speaks():
            print(f"paceline: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        # A file or folder that was named: not there, not to be written, on a full disk.
        print(f"paceline: {error.filename}: {error.strerror}; mend that or name another", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        print("paceline: interrupted", file=sys.stderr)
        return 130
