"""An optimizer's groups as flat parameters, for updates that are one vector operation.

    group {w1 b1 w2 b2, lr, weight decay}  ──▶  group {[w1|b1|w2|b2], lr, weight decay}

Right for optimizers that treat every element alike and alone; the others are refused. The user's optimizer
is torch's own, is given one long parameter a group (and type), and never knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from paceline.errors import ConfigError
from paceline.strategies._buckets import Bucket, by_type
from paceline.strategies._replica import views_of

ELEMENT_WISE = frozenset(
    ["ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]
)
"""torch's optimizers that treat every element alike and alone."""


def check_element_wise(
    owner: str, model: nn.Module, optimizer: torch.optim.Optimizer, *, trusted: bool
) -> None:
    """Refuse what cannot be updated in pieces of flat memory, in one line."""
    name = type(optimizer).__name__
    torchs = type(optimizer).__module__.startswith("torch.optim")
    if not (trusted or (torchs and name in ELEMENT_WISE)):
        raise ConfigError(
            f"{owner} updates slices of parameters, and {name} may not treat every element alone; use "
            f"ddp, one of {', '.join(sorted(ELEMENT_WISE))}, or set element_wise = true if it does"
        )
    if optimizer.state:
        raise ConfigError(f"{owner}: the optimizer has made steps already; attach it before the first")
    if any(not p.is_cpu for p in model.parameters()):
        raise ConfigError(f"{owner} shares memory between processes and needs a model on the CPU; use ddp")


Place = Callable[[Sequence[nn.Parameter]], Tensor]
"""Flat memory for some parameters: their values, or their gradients."""


class FlatGroup:
    """The trainable parameters of one group and type: values and gradients in flat memory."""

    def __init__(self, parameters: Sequence[nn.Parameter], values: Tensor, gradients: Tensor) -> None:
        self.values = values
        self.bucket = Bucket(parameters, lambda *_: gradients)
        self.parameter = nn.Parameter(values)

    def ready(self) -> None:
        """The gradients are complete: the optimizer may look at them."""
        self.bucket.restore()
        self.parameter.grad = self.bucket.flat


def zeros(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Memory of its own."""
    return torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)


def next_places(flat: Tensor) -> Place:
    """Each call gives the next piece of `flat`."""
    used = 0

    def place(parameters: Sequence[nn.Parameter]) -> Tensor:
        nonlocal used
        begin, used = used, used + sum(p.numel() for p in parameters)
        return flat[begin:used]

    return place


def flattened(optimizer: torch.optim.Optimizer, values: Place, gradients: Place = zeros) -> list[FlatGroup]:
    """Give the optimizer one flat parameter a group and type; the model's own become views of it."""
    groups = []
    for group in optimizer.param_groups:
        parameters, group["params"] = group["params"], []
        for some in by_type([p for p in parameters if p.requires_grad]):
            flat = values(some)
            views_of(flat, some)
            groups.append(FlatGroup(some, flat, gradients(some)))
            group["params"].append(groups[-1].parameter)
    return groups
