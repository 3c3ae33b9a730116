"""The tables of what was set and where it ran: hyper-parameters, every option, machine and versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paceline.report import formats
from paceline.report.measured import Group, Run, StudyData
from paceline.report.tables import Cell, Table

# (key of summary.json, what it is called), in the order of a recipe.
HYPER_PARAMETERS = (
    ("data", "data"),
    ("model", "model"),
    ("parameters", "parameters of the model"),
    ("optimizer", "optimizer"),
    ("lr", "learning rate"),
    ("learning_rate_rule", "learning rate scaled with the batch"),
    ("schedule", "schedule"),
    ("momentum", "momentum"),
    ("weight_decay", "weight decay"),
    ("batch", "batch per rank"),
    ("global_batch", "global batch"),
    ("micro_batches", "micro-batches"),
    ("epochs", "epochs"),
    ("steps", "steps (updates)"),
    ("samples", "training samples consumed"),
    ("collective_uses", "what the collective chose"),
    ("threads_per_rank", "threads per rank"),
    ("nodes", "nodes"),
    ("seed", "seeds"),
)


def hyper_parameters(study: StudyData) -> list[Table]:
    """One column per group; a value that changes with p is given for each p."""
    rows = []
    for key, name in HYPER_PARAMETERS:
        values = [_over_p(group, key) for group in study.groups]
        if any(value != formats.NONE for value in values):
            rows.append([Cell(name), *(Cell(value) for value in values)])
    return (
        [Table("Settings of each group", ["", *(group.title for group in study.groups)], rows)]
        if rows
        else []
    )


def _over_p(group: Group, key: str) -> str:
    """`128`, or `p=1: 128 · p=2: 64`; repeats that differ (seeds) are listed."""
    by_p = {p: _values(group.at(p), lambda run: run.summary.get(key)) for p in group.ranks}
    distinct = list(dict.fromkeys(by_p.values()))
    if len(distinct) == 1:
        return distinct[0]
    return " · ".join(f"p={p}: {value}" for p, value in by_p.items())


def configuration(study: StudyData) -> list[Table]:
    """Every option of config.toml; those that differ between cells list their values."""
    flat = [_flat(run.summary.get("config") or {}) for run in study.runs]
    keys = sorted({key for options in flat for key in options})
    rows = [[Cell(key), Cell(_said([options.get(key) for options in flat]))] for key in keys]
    return [Table("Every option", ["option", "value, or all values"], rows, folded=True)] if rows else []


def machine(study: StudyData) -> list[Table]:
    """Where it ran and with what; runs that differ in it compare with care."""
    found: dict[str, list[Any]] = {}
    for run in study.runs:
        said = {**(run.summary.get("machine") or {}), **(run.summary.get("versions") or {})}
        for key, value in (said | {"commit": run.text("commit"), "started": run.text("started")}).items():
            shown = formats.bytes_(value) if key.endswith("_bytes") else value
            found.setdefault(key.removesuffix("_bytes").replace("_", " "), []).append(shown)
    if "started" in found:
        found["started"] = [min(found["started"])]
    rows = [[Cell(key), Cell(_said(values))] for key, values in found.items() if any(values)]
    return [Table("Where it ran", ["", "value"], rows)] if rows else []


def _values(runs: list[Run], of: Callable[[Run], Any]) -> str:
    return _said([of(run) for run in runs])


def _said(values: list[Any]) -> str:
    return ", ".join(dict.fromkeys(_text(value) for value in values))


def _text(value: Any) -> str:
    if value is None or value == "":
        return formats.NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return formats.count(value) if value >= 10_000 else f"{value:g}"
    return str(value)


def _flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
