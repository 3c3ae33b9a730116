"""Download a set's files: mirrors in turn, resumed, checked, never half a file under the final name.

    <name> there and right? ── yes: done
       │ no
       ▼
    mirror 1 ─► <name>.part (continued by HTTP Range where it stopped) ─► md5 ─► rename to <name>
       │ 404, no route, cut off                      └─ wrong: .part is deleted
       ▼
    mirror 2 …          after the last one: one line that says what each answered

A cut-off download keeps its .part, so the next mirror or the next call continues it. A server that does not
know Range starts from the beginning. One lock a folder: two fetches do not write into one .part.
"""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.data.definition import DataSet, File
from paceline.data.lock import exclusive
from paceline.data.sources import cache_folder, md5_of
from paceline.errors import DataError
from paceline.registry import DATA_SETS

_TIMEOUT_SECONDS = 30.0  # without a byte
_BLOCK = 1 << 18

Advance = Callable[[int, int], None]  # bytes of the file so far, bytes of the whole file (0: unknown)


def fetch(name: str, to: str | os.PathLike[str] | None = None, *, progress: bool = True) -> list[Path]:
    """Download what is missing of the set into <to>/<name>, by default in the user's cache."""
    data_set: DataSet = DATA_SETS.make(name)
    files = downloads(data_set)
    if not files:
        return []
    folder = Path(to).expanduser().absolute() / name if to is not None else cache_folder() / "data" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / ".fetch.lock", f"fetch {name}"), _bar(progress) as start:
            return [fetch_file(file, folder, start(file)) for file in files]
    except OSError as error:
        raise DataError(
            f"cannot write to {folder} ({error.strerror or error}); choose another with --to"
        ) from error


def downloads(data_set: DataSet) -> tuple[File, ...]:
    """The files of the first layout that can be had from mirrors."""
    for layout in data_set.layouts:
        if all(file.mirrors for file in layout):
            return layout
    return ()


def fetch_file(file: File, folder: Path, advance: Advance = lambda done, total: None) -> Path:
    """One file, from the first mirror that delivers the published bytes."""
    path, part = folder / file.name, folder / f"{file.name}.part"
    failures: dict[str, list[str]] = {}  # why -> hosts
    if path.is_file() and md5_of(path) == file.md5:
        return path
    for url in file.mirrors:
        try:
            _download(url, part, file, advance)
            part.replace(path)
            return path
        except _Failed as error:
            failures.setdefault(str(error), []).append(urllib.parse.urlsplit(url).netloc)
    reasons = "; ".join(f"{', '.join(hosts)}: {why}" for why, hosts in failures.items())
    raise DataError(
        f"cannot fetch {file.name} ({reasons}); try again later, or put the file into {folder} yourself"
    )


class _Failed(Exception):
    """One mirror did not deliver; says why."""


def _download(url: str, part: Path, file: File, advance: Advance) -> None:
    """Continue or begin `part`; returns when it has the published md5, else raises _Failed."""
    have = part.stat().st_size if part.exists() else 0
    if have and md5_of(part) == file.md5:
        return None  # whole already, only not renamed
    _transfer(url, part, have, file, advance)
    found = md5_of(part)
    if found == file.md5:
        return None
    part.unlink()
    if have:  # what was continued may have been no beginning of this file: once more from the start
        return _download(url, part, file, advance)
    raise _Failed(f"delivered another file (md5 {found}, published {file.md5})")


def _transfer(url: str, part: Path, have: int, file: File, advance: Advance) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "paceline", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # we have all bytes that there are, or more: the md5 decides
        raise _Failed(f"HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"no connection ({getattr(error, 'reason', error)})") from error
    with response:
        continues = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        start = have if response.status == http.HTTPStatus.PARTIAL_CONTENT and continues else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdecimal() else file.size
        with part.open("r+b" if start else "wb") as out:
            out.seek(start)
            for block in _blocks(response):
                out.write(block)
                advance(out.tell(), total)
            out.flush()
            os.fsync(out.fileno())
            if out.tell() < total:
                raise _Failed(f"cut off after {out.tell():,} of {total:,} bytes")


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while block := response.read(_BLOCK):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"cut off ({error or type(error).__name__})") from error


@contextmanager
def _bar(shown: bool) -> Iterator[Callable[[File], Advance]]:
    """A progress bar a file on a terminal's standard error; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        *columns,
        console=console,
        disable=not (shown and console.is_terminal),
    ) as bar:

        def start(file: File) -> Advance:
            task = bar.add_task(file.name, total=file.size or None)
            return lambda done, total: bar.update(task, completed=done, total=total or None)

        yield start
