"""A model by name or `module:factory`, its batch norm over all ranks; what goes with a strategy."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.config import RunConfig
from paceline.errors import ConfigError
from paceline.nn import convert_sync_batchnorm
from paceline.registry import MODELS
from paceline.strategies import Strategy


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


def check_strategy(name: object, strategy: Any, collective: object, ranks: int) -> None:
    """What a strategy says of itself, against the number of ranks and the collective."""
    least, most = getattr(strategy, "least_ranks", 1), getattr(strategy, "most_ranks", None)
    usable = getattr(strategy, "collectives", None)
    if ranks < least:
        raise ConfigError(f"strategy {name!r} needs at least {least} ranks, not {ranks}")
    if most is not None and ranks > most:
        raise ConfigError(f"strategy {name!r} has at most {most} rank(s), not {ranks}; use --strategy ddp")
    if usable is not None and collective not in usable:
        raise ConfigError(
            f"strategy {name!r} works over {', '.join(usable)} only, not {collective!r}; "
            "leave out --collective"
        )


def over_all_ranks(model: nn.Module, strategy: Strategy) -> nn.Module:
    """The model with every batch norm over all ranks, by the messages of the run's strategy."""
    check_lockstep(type(strategy))
    if not any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise ConfigError(
            f"sync_batchnorm: {type(model).__name__} has no batch norm layer; leave sync_batchnorm out"
        )
    return convert_sync_batchnorm(model, strategy.collective)


def check_lockstep(strategy: type[Strategy]) -> None:
    """Batch norm over all ranks waits for all of them in every pass."""
    if not strategy.lockstep:
        raise ConfigError(
            f"sync_batchnorm: ranks of {strategy.__name__} do not step together, and this layer waits for "
            "all of them in every pass; choose ddp or one_copy, or leave sync_batchnorm out"
        )


def _positional(factory: Any) -> int:
    kinds = [p.kind for p in inspect.signature(factory).parameters.values() if p.default is p.empty]
    return sum(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)
