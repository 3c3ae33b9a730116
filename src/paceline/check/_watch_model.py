"""Observes every call of the model: what goes in, its parameters before, its BatchNorm statistics inside.

    model(x), training     rows of x as checksums; the parameters, once a step, where all replicas must agree
    model(x), evaluating   the statistics that the BatchNorm layers use

The model is the outermost module with parameters; a loss module has none. The parameters are looked at before
a forward pass, not after a step: a strategy may finish its work behind the optimizer. Statistics are looked
at when the layer itself is called, because DistributedDataParallel makes them equal on the way to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from paceline.check._recorder import Recorder
from paceline.check._sketch import sketch
from paceline.check._watch_data import DataWatch

_MOST_ROWS = 256


class ModelWatch:
    """Knows the model's parameters and how many samples went in."""

    def __init__(self, recorder: Recorder, data: DataWatch) -> None:
        self._recorder, self._data = recorder, data
        self._depth = 0
        self._looked = -1  # the step at which parameters were looked at last
        self._norms: list[Tensor] = []
        self._norm_said: tuple[str, int] | None = None
        self._models: dict[int, nn.Module] = {}
        self.parameters: list[nn.Parameter] = []
        self.samples = 0  # that were trained on since someone set this to 0
        self.in_backward = False  # where checkpointed modules are called again

    def install(self) -> None:
        watch, original = self, nn.Module.__call__

        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            watch._enter(self, (*args, *kwargs.values()))
            try:
                return original(self, *args, **kwargs)
            finally:
                watch._leave()

        nn.Module.__call__ = __call__  # type: ignore[method-assign]

    def note_end(self) -> None:
        """The script has ended: the statistics that it leaves."""
        norms = [n for model in self._models.values() for n in _statistics(model.modules())]
        if norms:
            self._recorder.write("norms", when="end", step=self._recorder.steps, sketch=sketch(norms))

    def _enter(self, module: nn.Module, inputs: Iterable[Any]) -> None:
        self._depth += 1
        if self.in_backward:
            return
        if self._depth == 1:
            self._norms = []
            self._training = module.training and torch.is_grad_enabled()
            if next(module.parameters(), None) is None:
                return
            if self._training:
                self._train(module, inputs)
            else:
                self._data.evaluated()
        self._norms += [each.clone() for each in _statistics([module])]

    def _leave(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._norms:
            when = ("train" if self._training else "eval", self._recorder.steps)
            if when != self._norm_said:
                self._norm_said = when
                self._recorder.write("norms", when=when[0], step=when[1], sketch=sketch(self._norms))
            self._norms = []

    def _train(self, module: nn.Module, inputs: Iterable[Any]) -> None:
        if id(module) not in self._models:
            self._models[id(module)] = module
            known = {id(p) for p in self.parameters}
            mine = (p for p in module.parameters() if p.requires_grad and not _is_sharded(p))
            self.parameters += [p for p in mine if id(p) not in known]
        batch = next(_tensors(inputs), None)
        self.samples += len(batch) if batch is not None else 0
        if not self._recorder.watching:
            return
        step = self._recorder.steps
        if batch is not None:
            self._recorder.write("forward", step=step, rows=_rows(batch))
        if step != self._looked and self.parameters:
            self._looked = step
            shared = any(p.is_shared() for p in self.parameters)
            sizes = [p.numel() for p in self.parameters]
            self._recorder.write(
                "replica", step=step, sketch=sketch(self.parameters), sizes=sizes, shared=shared
            )


def _is_sharded(parameter: nn.Parameter) -> bool:
    """A part of a parameter (a DTensor, as FSDP makes them) is no replica; to read it would communicate."""
    return hasattr(parameter, "to_local")


def _statistics(modules: Iterable[nn.Module]) -> list[Tensor]:
    """Running means and variances (BatchNorm's; ours and torch's synchronised ones too)."""
    found = (getattr(m, name, None) for m in modules for name in ("running_mean", "running_var"))
    return [each for each in found if isinstance(each, Tensor)]


def _tensors(things: Iterable[Any]) -> Iterator[Tensor]:
    for thing in things:
        if isinstance(thing, Tensor):
            if thing.dim():
                yield thing
        elif isinstance(thing, list | tuple):
            yield from _tensors(thing)
        elif isinstance(thing, dict):
            yield from _tensors(thing.values())


def _rows(batch: Tensor) -> list[int]:
    rows = batch.detach()[:_MOST_ROWS].cpu().contiguous()
    if not rows.numel():
        return []
    bytes_ = rows.reshape(len(rows), -1).view(torch.uint8).numpy()
    return [zlib.crc32(row.tobytes()) for row in bytes_]
