"""Gathers the runs below a folder into comparable groups and writes what the laws say of each.

    */summary.json ──▶ Group by (scaling, variant, strategy, collective, batch, data, model)
                   ──▶ analyse ──▶ laws.json

The cells of a group differ in ranks and repeat only. `batch` is the batch of a rank in weak scaling and the
global batch otherwise. Seconds are those for as many samples as the baseline trained on: with equal samples
just the training seconds, else in the ratio of the throughputs. A summary that cannot be read, or that is not
of a finished run, belongs to no group; the report names such runs.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.atomic import write_json
from paceline.study.laws import analyse

SCHEMA = 1
Summary = Mapping[str, Any]
Key = tuple[str | None, str, str, str, float, str, str]


def write_laws(folder: Path) -> Path:
    """Analyse every group of finished runs below the folder; the result is `folder/laws.json`."""
    groups = group_runs(read_summaries(folder))
    path = folder / "laws.json"
    write_json(path, {"schema": SCHEMA, "groups": [_entry(key, runs) for key, runs in groups.items()]})
    return path


def read_summaries(folder: Path) -> list[Summary]:
    """The summaries of all finished runs below a folder, in the order of their paths.

    Of a study, only its own cells: cells of an earlier version of its file may still lie in its folder."""
    found: list[Summary] = []
    cells = _cells(folder)
    for path in sorted(folder.rglob("summary.json")):
        if cells is not None and path.parent.name not in cells:
            continue
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(summary, dict) and _finished(summary):
            found.append(summary)
    return found


def _cells(folder: Path) -> set[str] | None:
    """The names of a study's cells; None where the folder is not a study's."""
    try:
        study = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        return {cell["id"] for cell in study["cells"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def group_runs(summaries: Sequence[Summary]) -> dict[Key, list[Summary]]:
    """Runs that differ in ranks and repeat only: strong before weak before neither, then by name."""
    groups: defaultdict[Key, list[Summary]] = defaultdict(list)
    for summary in summaries:
        groups[_key(summary)].append(summary)
    order = {"strong": 0, "weak": 1}
    return {
        key: groups[key] for key in sorted(groups, key=lambda key: (order.get(key[0] or "", 2), *key[1:]))
    }


def _key(summary: Summary) -> Key:
    scaling = summary.get("scaling") or None
    batch = float(summary["batch" if scaling == "weak" else "global_batch"])
    words = ("variant", "strategy", "collective", "data", "model")
    variant, strategy, collective, data, model = (str(summary.get(word) or "") for word in words)
    return scaling, variant, strategy, collective, batch, data, model


def _finished(summary: Summary) -> bool:
    needed = ("ranks", "batch", "global_batch", "train_seconds", "samples")
    return summary.get("status") == "done" and all(
        _is_number(summary.get(k)) and summary[k] > 0 for k in needed
    )


def _entry(key: Key, runs: Sequence[Summary]) -> dict[str, Any]:
    scaling, variant, strategy, collective, batch, data, model = key
    by_ranks: defaultdict[int, list[Summary]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run["ranks"], run.get("seed") or 0)):
        by_ranks[run["ranks"]].append(
            run
        )  # repeat i of every p has the same seed: they are compared in pairs
    kind = f", {scaling}" if scaling else ""
    return {
        "label": f"{variant or ' '.join(filter(None, (strategy, collective)))}{kind}, batch {batch:g}",
        "scaling": scaling,
        "variant": variant or None,
        "strategy": strategy,
        "collective": collective,
        "batch": int(batch) if batch.is_integer() else batch,
        "data": data,
        "model": model,
        "ranks": list(by_ranks),
        "repeats": {str(p): len(cells) for p, cells in by_ranks.items()},
        **{name: _text_keys(_column(by_ranks, name)) for name in ("train_seconds", "samples_per_second")},
        **{name: _text_keys(_column(by_ranks, name)) for name in ("train_accuracy", "test_accuracy")},
        "updates": _text_keys(_first(by_ranks, "steps")),
        "global_batch": _text_keys(_first(by_ranks, "global_batch")),
        "threads_per_rank": _text_keys(_first(by_ranks, "threads_per_rank")),
        "analysis": _analysis(scaling, by_ranks),
    }


def _analysis(scaling: str | None, by_ranks: Mapping[int, Sequence[Summary]]) -> dict[str, Any]:
    samples = next(iter(by_ranks.values()))[0]["samples"]
    cores = [
        run["machine"]["usable_cores"] * (run.get("nodes") or 1)
        for cells in by_ranks.values()
        for run in cells
        if (run.get("machine") or {}).get("usable_cores")
    ]
    found = analyse(
        {
            p: [run["train_seconds"] * (samples / run["samples"]) for run in cells]
            for p, cells in by_ranks.items()
        },
        scaling=scaling,
        cores=max(cores, default=None),
        accuracy=_column(by_ranks, "test_accuracy"),
        updates=_first(by_ranks, "steps"),
        batches={p: size / p for p, size in _first(by_ranks, "global_batch").items()},
        threads=_first(by_ranks, "threads_per_rank"),
    )
    return found.as_json()


def _column(by_ranks: Mapping[int, Sequence[Summary]], name: str) -> dict[int, list[float]]:
    """One number a repeat, for each p that has any."""
    columns = {
        p: [float(run[name]) for run in cells if _is_number(run.get(name))] for p, cells in by_ranks.items()
    }
    return {p: numbers for p, numbers in columns.items() if numbers}


def _first(by_ranks: Mapping[int, Sequence[Summary]], name: str) -> dict[int, float]:
    """What all repeats of a p have in common."""
    return {p: cells[0][name] for p, cells in by_ranks.items() if _is_number(cells[0].get(name))}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _text_keys(numbers: Mapping[int, Any]) -> dict[str, Any]:
    return {str(p): number for p, number in numbers.items()}
