"""Observes how a rank joins its world, and which collectives it calls, of which size.

    init_process_group   what the script says, before the call (it may hang); and what came of it
    all_reduce …         name and elements; a line a step

Replaced in the namespace `torch.distributed`, which scripts use. What DistributedDataParallel and Paceline's
strategies send does not pass there; what torch's own Python calls is not counted: no script can change it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch import Tensor

from paceline.check._recorder import Recorder

_COLLECTIVES = (
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all_single",
)  # fmt: skip
_MOST = 1000  # calls that are listed of a step


class WorldWatch:
    """Installs itself; `step` is told of each optimizer step."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._calls: list[tuple[str, int]] = []

    def install(self) -> None:
        space: Any = dist
        space.init_process_group = self._joining(dist.init_process_group)
        for name in _COLLECTIVES:
            setattr(space, name, self._counted(name, getattr(dist, name)))

    def step(self) -> None:
        if self._recorder.watching:
            self._recorder.write("calls", step=self._recorder.steps, calls=self._calls)
        self._calls = []

    def _joining(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind_partial(*args, **kwargs).arguments
            said = [_said(given, "rank", "RANK"), _said(given, "world_size", "WORLD_SIZE")]
            self._recorder.write("joining", rank=said[0], size=said[1])
            result = original(*args, **kwargs)
            self._recorder.write("joined", rank=dist.get_rank(), size=dist.get_world_size())
            return result

        return init_process_group

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if len(self._calls) < _MOST and not _is_torch(sys._getframe(1)):
                self._calls.append((name, _elements([*args, *kwargs.values()])))
            return original(*args, **kwargs)

        return collective


def _said(given: dict[str, Any], key: str, variable: str) -> int:
    """The argument where one is given (-1 is none), else the launcher's variable."""
    value = given.get(key, -1)
    return int(os.environ.get(variable, -1)) if value is None or value < 0 else int(value)


def _is_torch(caller: FrameType) -> bool:
    return str(caller.f_globals.get("__name__", "")).startswith("torch.")


def _elements(arguments: Iterable[Any]) -> int:
    """Of the largest tensor among the arguments."""
    sizes = [0]
    for argument in arguments:
        for each in argument if isinstance(argument, list | tuple) else (argument,):
            if isinstance(each, Tensor):
                sizes.append(each.numel())
    return max(sizes)
