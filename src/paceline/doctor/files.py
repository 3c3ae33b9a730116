"""Data sets: which are here. None has to be; a folder that was named has to."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.doctor.line import ADVICE, BROKEN, FINE, Line


def data_sets(missing: Mapping[str, str | None], folder: str | None, folder_exists: bool) -> Line:
    """`missing`: name -> what is missing of it, None if nothing. `folder`: PACELINE_DATA."""
    what = "data sets"
    if folder and not folder_exists:
        return Line(
            what, BROKEN, f"PACELINE_DATA={folder} is not a folder", "correct it, or unset PACELINE_DATA"
        )
    here = [name for name, said in missing.items() if said is None]
    absent = [name for name, said in missing.items() if said is not None]
    found = f"here: {', '.join(here) or 'none'}"
    partial = [said for said in missing.values() if said and " is missing (" in said]
    if partial:
        return Line(
            what,
            ADVICE,
            f"{found}; {partial[0].partition(';')[0]}",
            f"paceline data fetch {' '.join(absent)}",
        )
    return Line(what, FINE, found, f"wanted? paceline data fetch {' '.join(absent)}" if absent else "")


def cache(folder: str, failure: str) -> Line:
    """`failure`: why nothing can be written there."""
    if failure:
        return Line(
            "cache",
            BROKEN,
            f"{folder} cannot be written: {failure}",
            "set PACELINE_CACHE to a folder of yours",
        )
    return Line("cache", FINE, folder)
