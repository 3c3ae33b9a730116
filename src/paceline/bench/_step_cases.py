"""What is compared: a strategy with its options, the collective under it, and the optimizer's form.

torch_ddp                   the strategy of that name over the first collective it takes, else over shm
ddp@native                  over another collective
ddp[compression=bf16]       with options of its constructor
ddp:stock   ddp:fused       torch's SGD as tutorials construct it, or fused as `paceline train` does

The reference has stock SGD unless it says :fused, the others are fused unless they say :stock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.config.files import parse_options
from paceline.errors import ConfigError
from paceline.registry import COLLECTIVES, MODELS, STRATEGIES

REFERENCE = "torch_ddp"
"""What every PyTorch program uses: its time outside forward and backward is divided by the others'."""
DEFAULT = (REFERENCE, f"{REFERENCE}:fused", "ddp", "one_copy")
MODELS_DEFAULT = ("mnist_cnn", "svhn_lenet", "resnet18")
_FASTEST = "shm"
_WORD = re.compile(r"(?P<name>\w+)(?:\[(?P<options>.*)\])?(?:@(?P<collective>\w+))?(?P<form>:stock|:fused)?")
_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)


@dataclass(frozen=True)
class Case:
    """One side as it is measured; the label is what the user wrote."""

    label: str
    strategy: str
    options: Mapping[str, Any]
    collective: str
    fused: bool


def parse(label: str) -> Case:
    """One word of --strategies, checked."""
    match = _WORD.fullmatch(label)
    if match is None:
        raise ConfigError(
            f"--strategies {label!r}: write NAME, NAME[OPTION=VALUE], NAME@COLLECTIVE, with :stock or :fused"
        )
    name = STRATEGIES.check(match["name"])
    options = parse_options(match["options"] or "")
    STRATEGIES.check_options(name, options)
    allowed = STRATEGIES.load(name).collectives
    collective = match["collective"] or (allowed[0] if allowed else _FASTEST)
    if allowed and collective not in allowed:
        raise ConfigError(f"--strategies {label!r}: {name} works over {', '.join(allowed)} only")
    fused = match["form"] == ":fused" if match["form"] else name != REFERENCE
    return Case(label, name, options, COLLECTIVES.check(collective), fused)


def parse_all(labels: Sequence[str]) -> list[Case]:
    """All sides; each may be named once."""
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"--strategies names {label!r} twice; name each once")
    return [parse(label) for label in labels]


def shape_of(model: str) -> tuple[int, int, int]:
    """The pictures of the data set that a model is for."""
    MODELS.check(model)
    return _GREY if "mnist" in model else _COLOUR


def reference_of(labels: Sequence[str]) -> str | None:
    """The side that the others are compared with: the reference with stock SGD, where it is measured."""
    return next((label for label in labels if label in (REFERENCE, f"{REFERENCE}:stock")), None)
