"""Runs functions in real ranks, 50 ms a time: one process per test session imports torch and forks.

    zygote.run("cases.collectives:all_reduce", ranks=4, length=5) -> [result of rank 0, …]
    zygote.paceline("train", "--ranks", "2", cwd=tmp_path)         -> Done(code, out, err)

The function is called with a joined World and the arguments; results come back pickled through files. A rank
that fails raises here, with its own traceback.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINE = 30.0


class Zygote:
    """The process that forks the ranks; `with Zygote() as zygote:`."""

    def __enter__(self) -> Zygote:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, function: str, ranks: int, **arguments: Any) -> list[Any]:
        """Results in rank order."""
        with tempfile.TemporaryDirectory() as folder:
            order = {"function": function, "ranks": ranks, "arguments": arguments, "folder": folder}
            answer = self._ask(order)
            if answer["error"]:
                raise AssertionError(answer["error"])
            return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(ranks)]

    def paceline(self, *words: object, cwd: Path, **variables: str) -> Done:
        """A whole command line, in the helper process itself; what it and its ranks print is kept apart."""
        order = {"words": [str(word) for word in words], "cwd": str(cwd), "variables": variables}
        return Done(**self._ask(order))

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@dataclass(frozen=True)
class Done:
    """How a command line ended."""

    code: int
    out: str
    err: str


def _command(order: dict[str, Any]) -> dict[str, Any]:
    """Run one command line with standard output and error on files of its own."""
    from paceline.cli import main

    with tempfile.TemporaryDirectory() as folder:
        kept = os.dup(1), os.dup(2)
        before = dict(os.environ)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT), number)
        try:
            os.chdir(order["cwd"])
            os.environ.update(order["variables"])
            code = main(order["words"])
        except SystemExit as done:
            code = int(done.code or 0)
        except BaseException:
            traceback.print_exc()
            code = -1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.environ.clear()
            os.environ.update(before)
            for number, original in zip((1, 2), kept, strict=True):
                os.dup2(original, number)
                os.close(original)
        out, err = (Path(folder, name).read_text() for name in ("out", "err"))
    return {"code": code, "out": out, "err": err}


def _in_rank(order: dict[str, Any], place: Any) -> None:
    import torch

    from paceline.comm.world import joined

    torch.set_num_threads(1)
    module, _, name = order["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    with joined(place, DEADLINE) as world:
        result = function(world, **order["arguments"])
    Path(order["folder"], str(place.rank)).write_bytes(pickle.dumps(result))


def _serve() -> None:
    import paceline.train.rank  # noqa: F401 - imports torch, once, before every fork
    from paceline.launch import local

    sys.path.insert(0, str(Path(__file__).parent))
    answers = os.fdopen(os.dup(1), "w")  # what ranks print is not an answer
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        if "words" in order:
            print(json.dumps(_command(order)), file=answers, flush=True)
            continue
        error = None
        try:
            local.start(functools.partial(_in_rank, order), order["ranks"], threads=1, deadline=2 * DEADLINE)
        except Exception as problem:
            error = getattr(problem, "details", "") or traceback.format_exc()
        print(json.dumps({"error": error}), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
