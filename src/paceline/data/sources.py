"""Where a set's files are, and whether they are the published ones.

    --data-root   →   PACELINE_DATA   →   <cache>/data        first <root>/<name>/, then <root>/ itself
    the first folder that holds a whole layout of the set wins; files of two folders are never mixed;
    a --data-root that holds a part of one is an error, for other folders' files are not what was asked for

`locate` costs a few stat calls. `verify` reads every byte once (md5, 0.5 GB/s) and is asked only when a set
is prepared. md5 is here to notice damage and other versions, not an adversary: it is what the sets' authors
publish.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.data.definition import DataSet, File
from paceline.errors import DataError


@dataclass(frozen=True)
class Source:
    """A declared file and the place where it was found."""

    file: File
    path: Path


@dataclass(frozen=True)
class Verdict:
    """One file's md5 against the published one (empty: none is published)."""

    source: Source
    md5: str
    size: int

    @property
    def official(self) -> bool:
        return self.md5 == self.source.file.md5

    def __str__(self) -> str:
        name, published = self.source.path.name, self.source.file
        if self.official:
            return f"{name} is the published file"
        if not published.md5:
            return f"{name} (md5 {self.md5}) has no published checksum"
        found, official = f"md5 {self.md5}", f"md5 {published.md5}"
        if published.size not in (0, self.size):
            found, official = f"{self.size:,} bytes, {found}", f"{published.size:,} bytes, {official}"
        return f"{name} is not the official file ({found}; published {official})"


def cache_folder() -> Path:
    """The user's cache: $PACELINE_CACHE, else $XDG_CACHE_HOME/paceline, else ~/.cache/paceline."""
    if own := os.environ.get("PACELINE_CACHE"):
        return Path(own).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).expanduser().absolute() / "paceline"


def folders(name: str, data_set: DataSet, root: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """The folders that are looked in, in order."""
    if data_set.embedded is not None:
        yield data_set.embedded
        return
    named = (root, os.environ.get("PACELINE_DATA") or None)
    for place in [Path(place).expanduser().absolute() for place in named if place is not None] + [
        cache_folder() / "data"
    ]:
        yield place / name
        if place.name == name or not data_set.own_folder:
            yield place


def check_root(root: str | os.PathLike[str] | None) -> None:
    """Refuse a --data-root that is no folder: silently looking elsewhere would find other files."""
    if root is not None and not Path(root).expanduser().is_dir():
        raise DataError(f"--data-root {root} is not a folder")


def locate(name: str, data_set: DataSet, root: str | os.PathLike[str] | None = None) -> list[Source]:
    """The files of the set; DataError says which are missing and what to do."""
    check_root(root)
    if not data_set.layouts:
        return []
    looked = list(folders(name, data_set, root))
    named = Path(root).expanduser().absolute() if root is not None else None
    for folder in looked:
        there = [
            [source for file in layout if (source := Source(file, folder / file.name)).path.is_file()]
            for layout in data_set.layouts
        ]
        for layout, found in zip(data_set.layouts, there, strict=True):
            if len(found) == len(layout):
                return found
        if any(there) and named is not None and folder.is_relative_to(named):
            raise DataError(_missing(name, data_set.layouts, [folder]))
    raise DataError(_missing(name, data_set.layouts, looked))


def _missing(name: str, layouts: Sequence[Sequence[File]], looked: Sequence[Path]) -> str:
    advice = f"run `paceline data fetch {name}`, or name the folder with --data-root or PACELINE_DATA"
    for folder in looked:
        for layout in layouts:
            absent = [folder / file.name for file in layout if not (folder / file.name).is_file()]
            if len(absent) < len(layout):
                return f"{name}: {absent[0]} is missing ({len(absent)} of {len(layout)} files); {advice}"
    choices = " or ".join(layout[0].name for layout in layouts)
    return f"{name}: no {choices} in {', '.join(map(str, looked))}; {advice}"


def verify(sources: Sequence[Source]) -> list[Verdict]:
    """Every file's checksum against the published one."""
    return [Verdict(source, md5_of(source.path), source.path.stat().st_size) for source in sources]


def md5_of(path: Path) -> str:
    """The md5 of a file's bytes, in hex."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
