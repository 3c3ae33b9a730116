"""How the report writes a number: one function a quantity, three significant figures, a dash for unknown.

Units grow with the size (µs, ms, s, min, h; kB, MB, GB), so a column never needs to be decoded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NONE = "–"


def seconds(value: float | None) -> str:
    """`0.0042` -> `4.2 ms`, `83.1` -> `83.1 s`, `4210` -> `1 h 10 min`."""
    if value is None or not math.isfinite(value):
        return NONE
    if 0 < abs(value) < 0.9995e-3:
        return f"{significant(value * 1e6)} µs"
    if 0 < abs(value) < 0.9995:
        return f"{significant(value * 1e3)} ms"
    if abs(value) < 119.5:
        return f"{significant(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction 0…1 as per cent: `0.9853` -> `98.5 %`."""
    return NONE if value is None or not math.isfinite(value) else f"{value * 100:.{digits}f} %"


def target(value: float) -> str:
    """A target accuracy as it was asked for: `0.9` -> `90 %`, `0.985` -> `98.5 %`."""
    return f"{value * 100:g} %"


def points(difference: float | None) -> str:
    """The difference of two fractions in percentage points, always with its sign: `−0.19 points`."""
    if difference is None or not math.isfinite(difference):
        return NONE
    rounded = round(difference * 100, 2)
    if rounded == 0:
        return "±0.00 points"
    return f"{'+' if rounded > 0 else '−'}{abs(rounded):.2f} points"


def times(value: float | None) -> str:
    """A ratio: `1.18×`."""
    return NONE if value is None or not math.isfinite(value) else f"{value:.2f}×"


def bytes_(value: float | None) -> str:
    """Decimal units, as disks and networks count: `312000000` -> `312 MB`."""
    if value is None or not math.isfinite(value):
        return NONE
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{significant(value)} {unit}"
        value /= 1000
    return f"{significant(value)} TB"


def count(value: float | None) -> str:
    """`12345` -> `12,345`; a dealt-out mean such as `42.67` keeps two digits."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:,.2f}"


def significant(value: float) -> str:
    """Three significant figures without an exponent: `0.0123`, `1.23`, `12.3`, `123`, `1,234`."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else NONE
    rounded = float(f"{value:.3g}") if abs(value) < 1000 else value
    digits = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, min(digits, 9))}f}"


def between(low_high: Sequence[float] | None, unit: str = "×") -> str:
    """An interval: `1.12–1.25×`."""
    if low_high is None or len(low_high) != 2 or not all(math.isfinite(x) for x in low_high):
        return NONE
    return f"{low_high[0]:.2f}–{low_high[1]:.2f}{unit}"


def rate(value: float | None) -> str:
    """Samples a second, whole: `31,789`."""
    return count(None if value is None else round(value))


def ranks(p: int) -> str:
    """`1 rank`, `4 ranks`."""
    return "1 rank" if p == 1 else f"{p} ranks"


def listing(words: Sequence[str]) -> str:
    """`1`, `1 and 2`, `1, 2 and 4`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
