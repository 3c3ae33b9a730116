"""IDX, the format of MNIST and its relatives, plain or gzipped.

    2 zero bytes | type (8 = unsigned byte) | number of dimensions d | d × 4 bytes, big-endian | the values

Every number is checked before it is used: a wrong magic, a truncated or an overlong file is one line of
DataError.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.errors import DataError

_UNSIGNED_BYTE = 8
_MOST_BYTES = 1 << 32  # no IDX set is larger; a header that claims more is damaged, and is not allocated


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes (`.gz` is decompressed)."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            magic = file.read(4)
            if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != _UNSIGNED_BYTE or not 1 <= magic[3] <= 4:
                raise DataError(
                    f"{path}: not an IDX file of unsigned bytes (it begins with {magic.hex(' ')})"
                )
            header = file.read(4 * magic[3])
            if len(header) < 4 * magic[3]:
                raise DataError(f"{path}: truncated in its header; fetch it again")
            shape = struct.unpack(f">{magic[3]}I", header)
            return _values(path, file.read(min(math.prod(shape), _MOST_BYTES) + 1), shape)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: truncated or damaged ({error}); fetch it again") from error


def _values(path: Path, values: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    expected = math.prod(shape)
    if len(values) != expected:
        found = f"only {len(values):,}" if len(values) < expected else "more"
        raise DataError(
            f"{path}: the header says {expected:,} values {shape}, the file holds {found}; fetch it again"
        )
    return np.frombuffer(values, np.uint8).reshape(shape)
