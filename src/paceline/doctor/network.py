"""The interface that gloo takes: the one of GLOO_SOCKET_IFNAME, else the one of the host name's address.

Ranks of one machine meet on the loopback interface, whatever is found here; ranks of several cannot.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from paceline.doctor.line import ADVICE, BROKEN, FINE, Line

_VARIABLE = "GLOO_SOCKET_IFNAME"


def gloo_interface(
    chosen: str | None, interfaces: Mapping[str, Sequence[str]], host: str, resolved: Sequence[str]
) -> Line:
    """`interfaces`: name -> addresses of those that are up. `resolved`: the host name's addresses."""
    what = "gloo"
    outside = [name for name, addresses in interfaces.items() if any(not _loopback(a) for a in addresses)]
    if chosen:
        missing = [name for name in chosen.split(",") if name not in interfaces]
        if missing:
            return Line(
                what, BROKEN, f"{_VARIABLE}={chosen} names {missing[0]}, which is not here or not up",
                f"unset {_VARIABLE}, or choose of {', '.join(sorted(interfaces))}",
            )  # fmt: skip
        return Line(what, FINE, f"{_VARIABLE}={chosen}")
    local = next((name for name, own in interfaces.items() if set(own) & set(resolved)), None)
    if local and not all(map(_loopback, resolved)):
        return Line(what, FINE, f"{host} is {resolved[0]} on {local}")
    if not resolved:
        found = f"the host name {host} has no address"
    elif local:
        found = f"the host name {host} is {resolved[0]}, the loopback interface"
    else:
        found = f"the host name {host} is {resolved[0]}, which is no address of this machine"
    if not outside:
        return Line(what, FINE, f"{found}; there is no other interface")
    return Line(
        what,
        ADVICE,
        found,
        f"one machine needs nothing; before using several: export {_VARIABLE}={outside[0]}",
    )


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
