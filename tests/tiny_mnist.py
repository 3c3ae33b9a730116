"""IDX files as MNIST's authors write them, and where the tests put a tiny set of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@dataclass
class Tiny:
    """Where the files are (root/mnist/) and what they hold, in the order of the layout."""

    root: Path
    files: list[Path]
    arrays: list[np.ndarray]
