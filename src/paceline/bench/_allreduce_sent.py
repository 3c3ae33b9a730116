"""What one call sends: counted at the collective's link, else read from the kernel's counters of its sockets.

    a link (ring, butterfly, …)     messages and bytes of its tensors, as the collective sends them
    sockets (native over gloo)      TCP segments with data, and their bytes, of all sockets of this process
    shared memory                   neither: none

The kernel counts for every connection (TCP_INFO, Linux 4.19 and later), so a collective inside a library of
someone else's can be counted from outside, gloo's own headers included.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.comm.collectives import Collective
from paceline.comm.links import Counted

_INFO_BYTES = 208  # of the kernel's struct tcp_info, up to and with the field that is read last
_SEGMENTS_AT, _BYTES_AT = 156, 200  # tcpi_data_segs_out, tcpi_bytes_sent


@dataclass
class Sent:
    """Filled when the counting ends; None where nothing can be counted."""

    messages: int | None = None
    bytes: int | None = None


@contextlib.contextmanager
def counting(collective: Collective) -> Iterator[Sent]:
    """Around one call of the collective; other ranks' calls do not matter."""
    sent, link, before = Sent(), collective.link, _sockets()
    counted = Counted(link) if link is not None else None
    if counted is not None:
        collective.link = counted
    try:
        yield sent
    finally:
        collective.link = link
    after = _sockets()
    if counted is not None:
        sent.messages, sent.bytes = counted.messages, counted.bytes
    elif before is not None and after is not None:
        sent.messages, sent.bytes = (late - early for early, late in zip(before, after, strict=True))


def _sockets() -> tuple[int, int] | None:
    """Segments with data and bytes that all TCP sockets of this process have sent."""
    if not sys.platform.startswith("linux"):
        return None
    segments = nbytes = 0
    for place in Path("/proc/self/fd").iterdir():
        found = _socket(int(place.name))
        if found:
            segments += found[0]
            nbytes += found[1]
    return segments, nbytes


def _socket(descriptor: int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):  # closed meanwhile, or no TCP socket
        if not str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("socket:"):
            return None
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        if len(info) >= _INFO_BYTES:
            return struct.unpack_from("=I", info, _SEGMENTS_AT)[0], struct.unpack_from("=Q", info, _BYTES_AT)[
                0
            ]
    return None
