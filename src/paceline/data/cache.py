"""prepare: a set's files become four memory-mappable arrays in the user's cache, once a machine.

    locate ──► <cache>/prepared/<name>-<key>/meta.json there and whole? ──► yes: done (stat calls, 1 ms)
                       │ no: take the lock <name>-<key>.lock, look again
                       ▼
    verify (md5) ► read ► check shapes ► write .<name>-<key>.partial/*.npy, meta.json ► fsync ► rename

The key is a hash of name, options, format version and every source's (path, size, mtime_ns): a changed
source is prepared anew. The rename makes the folder appear whole or not at all; what a killed process
leaves is removed by the next one that holds the lock. No torch here: this runs in the process that later
forks the ranks. Cost: mnist 0.5–0.9 s, svhn 3–4 s, once; peak memory two copies of the set.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from paceline.data.definition import Arrays, DataSet, check_arrays
from paceline.data.lock import exclusive
from paceline.data.sources import Source, cache_folder, locate, verify
from paceline.errors import DataError
from paceline.registry import DATA_SETS

_FORMAT = 1  # raise it when what is written changes: old caches are then left alone and made anew
_PARTS = ("train_images", "train_labels", "test_images", "test_labels")
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Prepared:
    """A prepared set: where its arrays are, and everything a plan, a model or a report asks about it."""

    folder: Path
    name: str
    shape: tuple[int, int, int]  # channels, height, width
    classes: int
    train_size: int
    test_size: int
    mean: tuple[float, ...]  # per channel over the training part, pixels as 0…1
    std: tuple[float, ...]
    verified: bool  # every file has its published md5
    notice: str  # one sentence when not, else ""
    data_bytes: int  # of the arrays: what all ranks of a node map together


def prepare(
    name: str,
    root: str | os.PathLike[str] | None = None,
    allow_unverified: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Prepared:
    """The prepared set `name`, made now if it is not in the cache; any number of processes may ask."""
    data_set: DataSet = DATA_SETS.make(name, options=options)
    sources = locate(name, data_set, root)
    folder = _folder(name, data_set, sources, options or {})
    prepared = _open(folder)
    if prepared is None:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with exclusive(folder.with_name(f"{folder.name}.lock"), f"prepare {name}"):
                prepared = _open(folder) or _build(name, data_set, sources, folder, allow_unverified)
        except OSError as error:
            raise _explained(error, name, folder.parent) from error
    if not prepared.verified and not allow_unverified:
        raise _unverified(name, prepared.notice, sources)
    return prepared


def cached(name: str, data_set: DataSet, sources: Sequence[Source]) -> Prepared | None:
    """What `prepare` would find without doing anything (for a set without options)."""
    return _open(_folder(name, data_set, sources, {}))


def _folder(name: str, data_set: DataSet, sources: Sequence[Source], options: Mapping[str, Any]) -> Path:
    files = [source.path for source in sources]
    if ":" in name:  # the user's own set: its code is a source too
        module = sys.modules[type(data_set).__module__]
        files.append(Path(module.__file__ or ""))
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    content = json.dumps([_FORMAT, name, options, stats], sort_keys=True, default=str)
    entry = f"{re.sub(r'[^A-Za-z0-9_]+', '-', name)}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return cache_folder() / "prepared" / entry


def _open(folder: Path) -> Prepared | None:
    """What is in the cache, or None when it is missing or not whole."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        if any((folder / file).stat().st_size != size for file, size in meta["files"].items()):
            return None
        fields = meta["prepared"]
        for key in ("shape", "mean", "std"):
            fields[key] = tuple(fields[key])
        return Prepared(folder=folder, **fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _build(
    name: str, data_set: DataSet, sources: Sequence[Source], folder: Path, allow_unverified: bool
) -> Prepared:
    notice = " and ".join(str(verdict) for verdict in verify(sources) if not verdict.official)
    if notice and not allow_unverified:
        raise _unverified(name, notice, sources)
    arrays = data_set.read([source.path for source in sources])
    check_arrays(data_set, arrays, str(sources[0].path.parent) if sources else name)
    if data_set.train_size is None:
        sizes = f"{len(arrays.train_labels):,} train and {len(arrays.test_labels):,} test"
        notice += f": an unofficial number of pictures, {sizes}" if notice else ""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    partial.mkdir()
    try:
        prepared = _write(name, data_set, arrays, notice, partial)
        _swap(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return replace(prepared, folder=folder)


def _write(name: str, data_set: DataSet, arrays: Arrays, notice: str, folder: Path) -> Prepared:
    sizes = {}
    for part, array in zip(_PARTS, arrays, strict=True):
        array = np.ascontiguousarray(array, np.uint8 if part.endswith("images") else np.int64)
        sizes[f"{part}.npy"] = _write_array(folder / f"{part}.npy", array)
    mean, std = channel_statistics(arrays.train_images)
    prepared = Prepared(
        folder=folder,
        name=name,
        shape=data_set.shape,
        classes=data_set.classes,
        train_size=len(arrays.train_labels),
        test_size=len(arrays.test_labels),
        mean=mean,
        std=std,
        verified=not notice,
        notice=notice,
        data_bytes=sum(sizes.values()),
    )
    fields = {key: value for key, value in asdict(prepared).items() if key != "folder"}
    with (folder / "meta.json").open("w") as file:
        json.dump({"prepared": fields, "files": sizes}, file, indent=1)
        _sync(file)
    return prepared


def _write_array(path: Path, array: NDArray[Any]) -> int:
    # Not np.save: it reports a full disk without saying that the disk is full.
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)
        _sync(file)
        return file.tell()


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _swap(partial: Path, folder: Path) -> None:
    """Put the finished folder in the place of a missing or damaged one; the lock is held."""
    if folder.exists():  # damaged; who has it mapped keeps what he mapped
        old = partial.with_suffix(".damaged")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    partial.rename(folder)
    for place in (folder, folder.parent):
        descriptor = os.open(place, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def channel_statistics(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, pixels as 0…1.

    Exact, from a histogram of the 256 values, counted in chunks: no float copy of the set. A channel of one
    single value gets a deviation of 1, so that normalising does not divide by 0.
    """
    means, stds = [], []
    rows = max(1, _CHUNK // max(1, images[0, 0].size if len(images) else 1))
    values = np.arange(256) / 255
    for channel in range(images.shape[1]):
        counts = np.zeros(256, np.int64)
        for start in range(0, len(images), rows):
            counts += np.bincount(images[start : start + rows, channel].reshape(-1), minlength=256)
        total = max(1, int(counts.sum()))
        mean = float((counts * values).sum() / total)
        means.append(mean)
        stds.append(float(np.sqrt((counts * (values - mean) ** 2).sum() / total)) or 1.0)
    return tuple(means), tuple(stds)


def _unverified(name: str, notice: str, sources: Sequence[Source]) -> DataError:
    return DataError(
        f"{name}: in {sources[0].path.parent}, {notice}; get the published files with "
        f"`paceline data fetch {name}`, or accept these with --allow-unverified"
    )


def _explained(error: OSError, name: str, cache: Path) -> DataError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"no space left to prepare {name} in {cache}; free some"
    else:
        what = f"cannot prepare {name} in {cache} ({error}); mend that"
    return DataError(f"{what}, or set PACELINE_CACHE to another folder")
