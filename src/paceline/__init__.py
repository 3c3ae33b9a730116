"""Paceline: train one PyTorch model with many processes, choose by name how they cooperate,
and see honestly what it bought.

    import paceline as pl
    with pl.join() as world: …          for a loop of your own (library.py); torch is imported when it is used
"""

import importlib as _importlib
import importlib.metadata as _metadata
import typing as _typing

if _typing.TYPE_CHECKING:
    from paceline.library import Batch, JoinedWorld, Training, data_set, join
    from paceline.train.evaluate import Totals

try:
    __version__ = _metadata.version("paceline")
except _metadata.PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["Batch", "JoinedWorld", "Totals", "Training", "__version__", "data_set", "join"]

_LATER = {name: "library" for name in __all__ if name != "__version__"} | {"Totals": "train.evaluate"}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(_importlib.import_module(f"paceline.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
