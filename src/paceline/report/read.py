"""Reads what runs and studies left on disk: the only file of the report that opens theirs.

    DIR…  ── summary.json, *.npy ──▶ Run ──▶ Group (cells that differ in ranks and repeat only) ─┐
          ── failed.json ──────────▶ Failure ────────────────────────────────────────────────────┼─▶ StudyData
          ── study.json, laws.json ──────────────────────────────────────────────────────────────┘

Cost: one small JSON file and four arrays of one number per epoch for each run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paceline.errors import ConfigError, DataError
from paceline.report.keys import Key
from paceline.report.measured import CURVES, Curve, Failure, Group, Run, StudyData


def load(folders: Sequence[str | Path]) -> StudyData:
    """Everything below these study or run folders, merged; a folder given twice counts once."""
    roots = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    runs, failures = _cells(find(folders))
    studies = [_json(root / "study.json") for root in roots if (root / "study.json").is_file()]
    laws = [(path, _json(path)) for root in roots if (path := root / "laws.json").is_file()]
    return StudyData(
        folders=tuple(roots),
        about=tuple(studies),
        runs=tuple(runs),
        groups=tuple(_groups(runs, laws)),
        failures=tuple(failures + _missing(studies, {r.id for r in runs} | {f.id for f in failures})),
    )


def find(folders: Sequence[str | Path]) -> list[Path]:
    """The run folders below these folders, finished or failed; at least one."""
    found: set[Path] = set()
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigError(f"no folder {str(folder)!r}; give the folder of a study or of a run")
        root = Path(folder).resolve()
        runs = {path.parent for name in ("summary.json", "failed.json") for path in root.rglob(name)}
        listed = _listed(root)
        found |= runs if listed is None else {run for run in runs if run.name in listed}
    if not found:
        where = ", ".join(str(folder) for folder in folders)
        raise ConfigError(
            f"no run below {where}: no summary.json found; `paceline train` or `study` makes one"
        )
    return sorted(found)


def _listed(root: Path) -> set[str] | None:
    """The cells of a study (those of an earlier version of it may lie beside them); None: no study."""
    path = root / "study.json"
    return {str(cell.get("id")) for cell in _json(path).get("cells", ())} if path.is_file() else None


def _cells(folders: Sequence[Path]) -> tuple[list[Run], list[Failure]]:
    """A finished run has summary.json, a failed one failed.json; an unreadable one counts as failed."""
    runs: list[Run] = []
    failures: list[Failure] = []
    for folder in folders:
        try:
            if (folder / "summary.json").is_file():
                runs.append(_run(folder))
            else:
                failures.append(_failure(folder))
        except DataError as error:
            failures.append(Failure(folder.name, folder, str(error), None, ""))
    return runs, failures


def _run(folder: Path) -> Run:
    return Run(
        folder, _json(folder / "summary.json"), {name: _curve(folder / f"{name}.npy") for name in CURVES}
    )


def _failure(folder: Path) -> Failure:
    said = _json(folder / "failed.json")
    rank = said.get("rank")
    return Failure(
        id=folder.name,
        folder=folder,
        error=str(said.get("error") or "no reason was written"),
        rank=rank if isinstance(rank, int) else None,
        details=str(said.get("details") or ""),
    )


def _missing(studies: Iterable[Mapping[str, Any]], known: set[str]) -> list[Failure]:
    """Cells that a study lists and that left nothing on disk."""
    listed = [str(cell.get("id")) for study in studies for cell in study.get("cells", ())]
    return [
        Failure(id, None, "not run yet; the study continues with it", None, "")
        for id in listed
        if id not in known
    ]


def _curve(path: Path) -> Curve:
    """One number per epoch; empty when the run did not measure it."""
    if not path.is_file():
        return np.empty(0)
    try:
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64).reshape(-1)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path.name} in {path.parent} is not a numpy array; run this cell again") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as JSON ({error}); run the cell or the study again"
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no JSON object; run the cell or the study again")
    return content


def _groups(runs: Iterable[Run], laws: Sequence[tuple[Path, Mapping[str, Any]]]) -> list[Group]:
    together: dict[Key, list[Run]] = defaultdict(list)
    for run in runs:
        together[run.key].append(run)
    several = len({(key.data, key.model) for key in together}) > 1
    groups = []
    for key in sorted(together, key=Key.order):
        cells = sorted(together[key], key=lambda run: (run.ranks, run.id))
        path, law = _law_of(key, cells, laws)
        groups.append(Group(key, key.label(with_model=several), tuple(cells), law, path))
    return groups


def _law_of(
    key: Key, cells: Sequence[Run], laws: Sequence[tuple[Path, Mapping[str, Any]]]
) -> tuple[Path | None, Mapping[str, Any]]:
    """The analysis of exactly these cells; one that saw others (folders were merged) does not apply."""
    for path, content in laws:
        for entry in content.get("groups", ()):
            counted = {int(p): int(n) for p, n in entry.get("repeats", {}).items()}
            ours = {run.ranks: sum(other.ranks == run.ranks for other in cells) for run in cells}
            if (
                key.matches(entry)
                and counted == ours
                and all(run.folder.is_relative_to(path.parent) for run in cells)
            ):
                return path, entry.get("analysis") or {}
    return None, {}
