"""In a process of its own: import torch, say what it is, then measure all-reduce for some seconds.

    doctor ── fork ──► import torch ─► torch.json ─► two ranks, forked from here ─► rows.json
       └─ waits, with a deadline; a crash leaves what was written before

Nothing here runs a tensor operation before the ranks are forked.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import traceback
from pathlib import Path
from typing import Any

from paceline.atomic import write_json

_RANKS, _SIZES = 2, (1_000, 100_000)
_PATIENCE = 60.0


def trial(folder: Path, seconds: float) -> tuple[dict[str, Any] | None, list[dict[str, Any]] | None, str]:
    """(what torch is, the rows, how it failed); None for what was not reached."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(folder, seconds))
    process.start()
    process.join(_PATIENCE + 3 * seconds)
    failure = ""
    if process.is_alive():
        process.kill()  # its ranks end with it
        process.join()
        failure = f"it was not done after {_PATIENCE + 3 * seconds:g} s"
    elif process.exitcode:
        said = _read(folder / "failure.json")
        failure = said["said"] if said else f"its process ended with {_how(process.exitcode)}"
    return _read(folder / "torch.json"), _read(folder / "rows.json"), failure


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _run(folder: Path, seconds: float) -> None:
    try:
        write_json(folder / "torch.json", _torch())
        write_json(folder / "rows.json", _rows(seconds) if seconds else [])
    except BaseException as error:
        last = traceback.format_exception_only(error)[-1].strip()
        write_json(folder / "failure.json", {"said": last.partition("\n")[0]})
        raise SystemExit(1) from error


def _torch() -> dict[str, Any]:
    began = time.perf_counter()
    import torch
    import torch.distributed as dist

    return {
        "version": torch.__version__,
        "seconds": time.perf_counter() - began,
        "distributed": dist.is_available(),
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "cuda": torch.version.cuda,
        "gpus": torch.cuda.device_count(),
    }


def _rows(seconds: float) -> list[dict[str, Any]]:
    """What `paceline bench allreduce` measures, for every collective that `auto` may choose."""
    from paceline.bench import allreduce
    from paceline.bench._allreduce_cases import every_case
    from paceline.bench._progress import BenchProgress
    from paceline.registry import COLLECTIVES

    labels = [label for label in every_case() if COLLECTIVES.load(label.partition(":")[0]).candidate]
    asked = argparse.Namespace(
        config=None, ranks=[_RANKS], sizes=list(_SIZES), collectives=labels, seconds=seconds, memory=False
    )
    with BenchProgress() as progress:
        return allreduce.measure(asked, progress)
