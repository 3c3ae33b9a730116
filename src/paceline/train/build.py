"""A model by name, or by the user's own `module:factory`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from paceline.config import RunConfig
from paceline.errors import ConfigError
from paceline.registry import MODELS


def build_model(config: RunConfig, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Our models are given (shape, classes); a factory of the user's own as many of the two as it takes."""
    factory = MODELS.load(config.model)
    options: Mapping[str, Any] = config.model_options
    MODELS.check_options(config.model, options)
    try:
        model = factory(*(shape, classes)[: _positional(factory)], **options)
    except ValueError as error:
        if ":" in config.model:
            raise  # in the user's own code: the traceback says where
        raise ConfigError(f"model {config.model!r} cannot be built for {config.data!r}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model {config.model!r} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def _positional(factory: Any) -> int:
    kinds = [p.kind for p in inspect.signature(factory).parameters.values() if p.default is p.empty]
    return sum(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)
