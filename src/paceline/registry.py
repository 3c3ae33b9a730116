"""Name -> class, by one rule and no table: the file `strategies/local_sgd.py` holds the class `LocalSgd`
and is called `local_sgd` on the command line, in files and in plot legends.

A new file in one of these folders is therefore known by existing. Names are listed without importing
anything (so `--help` stays fast); a class is imported when it is asked for. `package.module:thing` names
something of the user's own in the same place.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError, did_you_mean
from paceline.typed import fitted

_PACKAGE = Path(__file__).parent
_OWN = re.compile(r"\w+(\.\w+)*:\w+")


class Registry:
    """The variants of one kind: every file of a folder whose name does not begin with an underscore."""

    def __init__(self, kind: str, folder: str) -> None:
        self.kind = kind
        self.folder = folder

    def names(self) -> list[str]:
        """All names, sorted; imports nothing."""
        return sorted(p.stem for p in (_PACKAGE / self.folder).glob("*.py") if not p.stem.startswith("_"))

    def check(self, name: str) -> str:
        """The name itself when it can be a variant, else a one-line error with a suggestion."""
        if ":" in name:
            if not _OWN.fullmatch(name):
                raise ConfigError(f"{self.kind} {name!r} is not module:thing; write for example mine:make")
        elif name not in self.names():
            raise ConfigError(f"no {self.kind} {name!r}; {did_you_mean(name, self.names())}")
        return name

    def load(self, name: str) -> Any:
        """The class (or the user's own factory) behind a name."""
        self.check(name)
        if ":" in name:
            return _load_own(self.kind, name)
        module = importlib.import_module(f"paceline.{self.folder.replace('/', '.')}.{name}")
        return getattr(module, camel(name))

    def make(self, name: str, *arguments: Any, options: Mapping[str, Any] | None = None) -> Any:
        """Construct the variant; options are checked against its keyword-only parameters."""
        factory = self.load(name)
        self.check_options(name, options or {})
        return factory(*arguments, **(options or {}))

    def check_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Refuse an option that the variant does not take, or a value of another type than it declares."""
        known = option_hints(self.load(name))
        for key, value in options.items():
            if key not in known:
                hint = did_you_mean(key, known) if known else "it takes none"
                raise ConfigError(f"{self.kind} {name!r} has no option {key!r}; {hint}")
            fitted(f"{self.kind} {name!r}: {key}", value, known[key])


def option_hints(factory: Any) -> dict[str, Any]:
    """A variant's options are the keyword-only parameters of its constructor: name -> type hint.

    A hint that cannot be resolved (or is not there) is Any: what it means is for the variant to say."""
    parameters = inspect.signature(factory).parameters.values()
    names = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    try:
        hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    except Exception:  # names that exist for a type checker only, or anything else in the user's own code
        hints = {}
    return {name: hints.get(name, Any) for name in names}


def camel(name: str) -> str:
    """`local_sgd` -> `LocalSgd`."""
    return "".join(part.capitalize() for part in name.split("_"))


def _load_own(kind: str, name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's module lies where the command was typed
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{kind} {name!r}: cannot import {error.name!r} from {Path.cwd()}") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"{kind} {name!r}: {module.__file__} has no {attribute!r}")
    return getattr(module, attribute)


COLLECTIVES = Registry("collective", "comm/collectives")
LINKS = Registry("link", "comm/links")
DATA_SETS = Registry("data set", "data/sets")
MODELS = Registry("model", "models")
STRATEGIES = Registry("strategy", "strategies")
