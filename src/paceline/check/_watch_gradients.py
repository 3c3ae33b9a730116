"""Observes the first steps' gradients: each rank's own, before anything is sent, and those that are used.

    loss function      its value and reduction            ┐ how the script scales its loss
    backward           the value it starts from           ┘
    tensor hook        the own gradient, before DistributedDataParallel or any hook of a strategy sees it
    clip               the complete gradient, before it is shortened
    optimizer.step     the gradient that is used

Own gradients are added up over the backward passes of a step. Cost: for three steps, one more copy of the
gradients; afterwards a flag is tested.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from paceline.check._recorder import WATCHED, Recorder
from paceline.check._sketch import sketch
from paceline.check._watch_data import DataWatch
from paceline.check._watch_model import ModelWatch

_CLIPS = ("clip_grad_norm_", "clip_grad_value_")


class GradientWatch:
    """The first optimizer that steps is the one that counts."""

    def __init__(self, recorder: Recorder, data: DataWatch, model: ModelWatch) -> None:
        self._recorder, self._data, self._model = recorder, data, model
        self._hooked: set[int] = set()
        self._own: dict[int, Tensor] = {}
        self._losses: list[tuple[float, str]] = []  # (value, reduction) since the last backward
        self._backwards: list[dict[str, Any]] = []  # of this step
        self._unclipped: list[float] | None = None
        self._optimizer: Optimizer | None = None
        self._first: list[Callable[[], None]] = []
        self._every: list[Callable[[], None]] = []

    def on_first_step(self, call: Callable[[], None]) -> None:
        self._first.append(call)

    def on_step(self, call: Callable[[], None]) -> None:
        self._every.append(call)

    def install(self) -> None:
        torch.autograd.backward = self._backward(torch.autograd.backward)
        for name, function in vars(nn.functional).copy().items():
            if callable(function) and not name.startswith("_") and _reduces(function):
                setattr(nn.functional, name, self._loss(function))
        for name in _CLIPS:
            setattr(nn.utils, name, self._clip(getattr(nn.utils, name)))
            setattr(nn.utils.clip_grad, name, getattr(nn.utils, name))
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    @property
    def _watching(self) -> bool:
        return self._recorder.steps < WATCHED

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._data.trained()
            if self._watching:
                self._hook_all()
                self._note_backward(tensors)
            self._model.in_backward = True
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self._model.in_backward = False

        return backward

    def _note_backward(self, tensors: Any) -> None:
        value = float(tensors.detach()) if isinstance(tensors, Tensor) and tensors.numel() == 1 else None
        loss, reduction = self._losses[0] if len(self._losses) == 1 else (0.0, None)
        ratio = value / loss if value is not None and loss else None
        samples, self._model.samples, self._losses = self._model.samples, 0, []
        self._backwards.append({"ratio": ratio, "reduction": reduction, "samples": samples})

    def _hook_all(self) -> None:
        for parameter in self._model.parameters:
            if id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                parameter.register_hook(functools.partial(self._arrived, id(parameter)))

    def _arrived(self, key: int, gradient: Tensor) -> None:
        if self._watching:
            dense = gradient.detach().to_dense() if gradient.is_sparse else gradient.detach()
            self._own[key] = self._own[key] + dense if key in self._own else dense.clone()

    def _loss(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Only the outermost of nested loss functions counts."""
        inside = False
        signature = inspect.signature(original)

        @functools.wraps(original)
        def loss(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside or not self._watching or not torch.is_grad_enabled():
                return original(*args, **kwargs)
            inside = True
            try:
                value = original(*args, **kwargs)
            finally:
                inside = False
            if isinstance(value, Tensor) and value.requires_grad and value.numel() == 1:
                reduction = signature.bind(*args, **kwargs).arguments.get("reduction", "mean")
                self._losses.append((float(value.detach()), reduction))
            return value

        return loss

    def _clip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(*args: Any, **kwargs: Any) -> Any:
            if self._watching and self._unclipped is None:
                self._unclipped = sketch(p.grad for p in self._model.parameters)
            return original(*args, **kwargs)

        return clip

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizer = self._optimizer or optimizer
        if optimizer is not self._optimizer or not self._watching:
            return
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        parameters = self._model.parameters
        if self._backwards and parameters and all(id(p) in mine for p in parameters):
            self._recorder.write(
                "gradient",
                step=self._recorder.steps,
                own=sketch(self._own.get(id(p)) for p in parameters),
                used=self._unclipped or sketch(p.grad for p in parameters),
                backwards=self._backwards,
            )

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer is not self._optimizer:
            return
        if self._recorder.steps == 0:
            for call in self._first:
                call()
        self._own, self._backwards, self._unclipped = {}, [], None
        for call in self._every:
            call()
        self._recorder.stepped()


def _reduces(function: Callable[..., Any]) -> bool:
    """Is it one of torch's loss functions?"""
    try:
        return "reduction" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
