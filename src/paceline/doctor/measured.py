"""All-reduce as it was measured here, for a few seconds: is it right, and is it faster than gloo?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.doctor.line import ADVICE, BROKEN, FINE, Line

_WHAT = "all-reduce"
_ERROR = 1e-3  # of a mean of normally distributed float32; a right one is below 1e-6


def all_reduce(rows: Sequence[Mapping[str, Any]] | None, reference: str, failure: str) -> Line:
    """Rows of `paceline bench allreduce`; `reference` is the collective that is gloo's own."""
    if rows is None:
        return Line(
            _WHAT, BROKEN, f"was not measured: {failure}", "paceline bench allreduce --ranks 2 shows more"
        )
    if not rows:
        return Line(_WHAT, FINE, "not measured: --seconds 0")
    wrong = [row for row in rows if not row["same_bits"] or not row["max_error"] < _ERROR]
    if wrong:
        row = wrong[0]
        which = f"{row['collective']} of {row['elements']:,} numbers"
        how = f"is wrong by {row['max_error']:.1e}" if row["same_bits"] else "differs between ranks"
        return Line(
            _WHAT,
            BROKEN,
            f"{which} {how}",
            f"use another collective than {row['collective']}, and report this",
        )
    said, slow = [], []
    for elements in sorted({row["elements"] for row in rows}):
        of_size = {row["collective"]: row["median_us"] for row in rows if row["elements"] == elements}
        best, native = min(of_size, key=lambda name: of_size[name]), of_size.get(reference)
        said.append(f"{elements:,} numbers: {best} {_time(of_size[best])}")
        if native is not None and best != reference:
            said[-1] += f", gloo {_time(native)} ({native / of_size[best]:.0f}×)"
        elif native is not None:
            slow.append(elements)
    skipped = {name: why for row in rows for name, why in row.get("skipped", {}).items()}
    if skipped or len(slow) == len(said):
        do = "; ".join(f"{name} was left out: {why}" for name, why in skipped.items())
        return Line(
            _WHAT, ADVICE, "; ".join(said), do or "gloo is the fastest here: nothing to gain on one machine"
        )
    return Line(_WHAT, FINE, "; ".join(said))


def _time(microseconds: float) -> str:
    return f"{microseconds:.0f} µs" if microseconds < 1e4 else f"{microseconds / 1e3:.0f} ms"
