"""Named files out of a .tar.gz, in memory: nothing is unpacked to disk, so no path in the archive matters."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import DataError

_MOST_BYTES = 1 << 28  # the largest member of any set is 155 MB; a header that claims more is not believed


def read_members(path: Path, names: Sequence[str]) -> list[bytes]:
    """The contents of the named members, in one pass over the archive."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                stream = archive.extractfile(member) if name in names and member.size <= _MOST_BYTES else None
                if stream is not None:
                    found[name] = stream.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path}: truncated or damaged ({error}); fetch it again") from error
    for name in names:
        if name not in found:
            raise DataError(f"{path}: holds no {name}; fetch it again")
    return [found[name] for name in names]
