"""Runs the cells of a study one after the other, and can be interrupted at any moment.

    folder/study.toml        the study as it was resolved
    folder/cells/<id>/       one run folder a cell; summary.json means done, failed.json failed
    folder/study.json        every cell with its status
    folder/.lock             held while the study runs

A cell that is done, by its configuration's hash, is not run again; one that failed or was cut off is. A
failed cell does not stop the others.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paceline.atomic import write_json, write_text
from paceline.config import to_toml
from paceline.config.study import StudyConfig
from paceline.data.lock import exclusive
from paceline.errors import ConfigError, PacelineError, UsageError
from paceline.metrics.resources import commit, machine
from paceline.study.grid import Cell
from paceline.train.run import check, execute

SCHEMA = 1


class Watcher:
    """Told what happens; the command line draws it. This one is silent."""

    def begin(self, cells: Sequence[Cell], missing: Sequence[Cell]) -> None:
        """`missing` will be run, the rest is done already."""

    def start(self, cell: Cell, folder: Path) -> None:
        """A cell begins."""

    def tick(self) -> None:
        """Called a few times a second while a cell runs."""

    def done(self, cell: Cell, error: str | None) -> None:
        """A cell ended, well or with an error."""

    def end(self) -> None:
        """The last cell has ended."""


def run_study(
    study: StudyConfig, cells: Sequence[Cell], folder: Path, command: str, watcher: Watcher
) -> dict[str, Any]:
    """Run what is missing; returns (and writes) the content of study.json."""
    for cell in cells:
        _checked(cell)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / ".lock", f"run the study in {folder}", deadline_seconds=0):
        return _run_missing(study, cells, folder, command, watcher)


def _run_missing(
    study: StudyConfig, cells: Sequence[Cell], folder: Path, command: str, watcher: Watcher
) -> dict[str, Any]:
    """The lock of the folder is held: two that run the same study would remove each other's cells."""
    write_text(folder / "study.toml", to_toml(study.as_dict()))
    missing = [cell for cell in cells if status(folder, cell) != "done"]
    watcher.begin(cells, missing)
    try:
        for cell in missing:
            place = cell_folder(folder, cell)
            shutil.rmtree(place, ignore_errors=True)  # what a cut-off or failed attempt left
            watcher.start(cell, place)
            watcher.done(cell, _run_cell(cell, place, command, watcher.tick))
    finally:
        watcher.end()
        index = _index(study, cells, folder, command)
        write_json(folder / "study.json", index)
    return index


def status(folder: Path, cell: Cell) -> str:
    """done, failed or missing."""
    place = cell_folder(folder, cell)
    try:
        summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
        return "done" if summary["config_hash"] == cell.digest else "missing"
    except (OSError, ValueError, KeyError, TypeError):
        return "failed" if (place / "failed.json").exists() else "missing"


def cell_folder(folder: Path, cell: Cell) -> Path:
    """Where a cell's run lies."""
    return folder / "cells" / cell.id


def _checked(cell: Cell) -> None:
    try:
        check(cell.config)
    except UsageError as error:
        raise ConfigError(f"cell {cell.id}: {error}") from error


def _run_cell(cell: Cell, place: Path, command: str, tick: Callable[[], None]) -> str | None:
    """None when it went well, else what went wrong in one line (and in its failed.json)."""
    try:
        execute(
            cell.config.replace(out=str(place)),
            started=time.time(),
            command=command,
            scaling=cell.scaling,
            variant=cell.variant,
            quiet=True,
            tick=tick,
        )
    except PacelineError as error:
        if not (place / "failed.json").exists():
            place.mkdir(parents=True, exist_ok=True)
            write_json(place / "failed.json", {"error": str(error), "rank": None, "details": ""})
        return str(error)
    return None


def _index(study: StudyConfig, cells: Sequence[Cell], folder: Path, command: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": study.name,
        "title": study.title or study.name,
        "question": study.question,
        "targets": list(study.targets),
        "compare": study.compare,
        "cells": [cell.as_dict() | {"status": status(folder, cell)} for cell in cells],
        "command": command,
        "commit": commit(),
        "machine": machine(),
    }
