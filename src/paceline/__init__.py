"""Paceline: train one PyTorch model with many processes, choose by name how they cooperate,
and see honestly what it bought."""

import importlib.metadata as _metadata

try:
    __version__ = _metadata.version("paceline")
except _metadata.PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
