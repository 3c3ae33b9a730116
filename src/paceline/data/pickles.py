"""A reader for pickled arrays that runs nothing else.

A pickle is a program: it may name any function of any module and call it. This reader lets the program name
only what a numpy array is rebuilt from, and refuses everything else before it is imported. What an array of
bytes needs:

    numpy._core.multiarray._reconstruct, numpy.ndarray, numpy.dtype   (numpy.core before numpy 2)
    _codecs.encode                                                     bytes in a pickle of protocol 2
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np

from paceline.errors import DataError

_ALLOWED = {
    (module, name)
    for package in ("numpy.core", "numpy._core")
    for module, name in ((f"{package}.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"))
}


def read_pickle(file: IO[bytes], where: Path | str) -> dict[str, Any]:
    """The dictionary in a pickle of plain values and arrays; DataError names whatever else it asks for."""
    try:
        content = _Restricted(file, where).load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle program may fail in any way
        raise DataError(f"{where}: truncated or damaged pickle ({error!r}); fetch it again") from error
    if not isinstance(content, dict):
        raise DataError(f"{where}: expected a dictionary, found {type(content).__name__}")
    return content


class _Restricted(pickle.Unpickler):
    def __init__(self, file: IO[bytes], where: Path | str) -> None:
        super().__init__(file, encoding="latin1")  # Python 2 text of the official files
        self._where = where

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _encode
        if (module, name) not in _ALLOWED:
            raise DataError(
                f"{self._where}: refused, its pickle asks for {module}.{name}; only arrays are read"
            )
        if name == "_reconstruct":  # its module moved with numpy 2: both names mean this numpy's own
            return np.ndarray.__reduce__(np.empty(0))[0]
        return getattr(np, name)


def _encode(text: str, encoding: str) -> bytes:
    """Stands for _codecs.encode: nothing but the latin1 in which pickles of protocol 2 keep bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise DataError(f"refused, a pickle asks for the encoding {encoding!r}")
    return text.encode("latin1")
