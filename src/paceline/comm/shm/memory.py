"""Memory that exactly the ranks of one world map, and that has no name anybody could leave behind.

    rank 0    makes it, reserves its pages, tells the others (through the store) where its descriptor is
    others    open that descriptor through /proc, compare boot id and inode, map it
    rank 0    hears from everybody, then tells everybody the same verdict

Where a memfd is possible (Linux) it never has a name and does not count against /dev/shm, which is 64 MB in a
default container; otherwise a file in /dev/shm with a random name and mode 0600 is unlinked at the verdict.
Either way the last process that dies takes it along. Pages are reserved before they are used: too little
memory is an error message and not a SIGBUS. Cost: about 3p requests to the store, once.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paceline.comm.world import World
from paceline.errors import ConfigError
from paceline.metrics import resources

_PAGE = mmap.PAGESIZE


def shared(world: World, nbytes: int, *, named: bool = False) -> mmap.mmap:
    """Zeros that every rank of the world maps; all ranks ask for the same, in the same order."""
    turn = world.store.add(f"shm/{world.rank}/count", 1)
    key = f"shm/{turn}"
    size = max(_PAGE, -(-nbytes // _PAGE) * _PAGE)
    mapping: mmap.mmap | None = None
    with contextlib.ExitStack() as cleanup:
        if world.rank == 0:
            offer: dict[str, Any] = {"problem": None}
            try:
                descriptor, offer = cleanup.enter_context(_made(size, named))
                mapping = _mapped(descriptor, size)
            except OSError as error:
                offer["problem"] = f"{size / 2**20:.1f} MB of shared memory cannot be had: {error.strerror}"
            world.store.set(f"{key}/offer", json.dumps(offer))
            problem = offer["problem"] or _heard(world, key)
            world.store.set(f"{key}/verdict", problem or "")
        else:
            offer = json.loads(world.store.get(f"{key}/offer"))
            if not offer["problem"]:
                mapping, said = _attached(offer, size)
                world.store.set(f"{key}/{world.rank}", said)
            problem = str(world.store.get(f"{key}/verdict"), "utf-8")
    if problem or mapping is None:
        raise ConfigError(f"shared memory: {problem}; choose another collective or strategy")
    return mapping


def _heard(world: World, key: str) -> str | None:
    """What the first rank that could not attach says."""
    for rank in range(1, world.size):
        said = str(world.store.get(f"{key}/{rank}"), "utf-8")
        if said:
            return f"rank {rank} {said}"
    return None


@contextlib.contextmanager
def _made(size: int, named: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """A descriptor of reserved memory and where others find it; its name, if it had one, goes at the end."""
    available = resources.available_memory_bytes()
    if size > available:  # the kernel would grant it and kill somebody later
        raise OSError(errno.ENOMEM, f"{available / 2**20:.1f} MB of memory are free")
    make = _file if named or not hasattr(os, "memfd_create") else _memfd
    descriptor, path, remove = make(size)
    try:
        os.fchmod(descriptor, 0o600)
        os.posix_fallocate(descriptor, 0, size)
        found = os.fstat(descriptor)
        inode = [found.st_dev, found.st_ino]
        yield descriptor, {"problem": None, "boot": resources.boot_id(), "path": path, "inode": inode}
    finally:
        remove()
        os.close(descriptor)


def _memfd(size: int) -> tuple[int, str, Callable[[], None]]:
    descriptor = os.memfd_create("paceline", os.MFD_CLOEXEC)
    return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}", lambda: None


def _file(size: int) -> tuple[int, str, Callable[[], None]]:
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    path = folder / f"paceline-{secrets.token_hex(8)}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    return descriptor, str(path), lambda: path.unlink(missing_ok=True)


def _attached(offer: dict[str, Any], size: int) -> tuple[mmap.mmap | None, str]:
    """The mapping, or what went wrong."""
    if offer["boot"] != resources.boot_id():
        return None, "is on another node than rank 0 (another boot id)"
    try:
        descriptor = os.open(offer["path"], os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return None, f"cannot open rank 0's memory ({error.strerror}): another container, or another user?"
    try:
        found = os.fstat(descriptor)
        if [found.st_dev, found.st_ino] != offer["inode"] or found.st_size != size:
            return None, "finds other memory where rank 0's should be: another container?"
        return _mapped(descriptor, size), ""
    except OSError as error:
        return None, f"cannot map rank 0's memory ({error.strerror})"
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, size: int) -> mmap.mmap:
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    return mmap.mmap(descriptor, size, flags, mmap.PROT_READ | mmap.PROT_WRITE)
