"""RunConfig: one frozen record of everything that decides a run.

A field's name is its key in a TOML file; with hyphens it is its option on the command line. Its metadata
hold the help text, the group it is shown in and the values allowed, so that the command line, the files
and the documentation cannot disagree.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from paceline.config.slow import parse_slow
from paceline.errors import ConfigError, did_you_mean
from paceline.registry import COLLECTIVES, DATA_SETS, MODELS, STRATEGIES, Registry

Options = Mapping[str, Any]
Check = Callable[[Any], str | None]

OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("constant", "cosine", "one_cycle")
LEARNING_RATE_RULES = ("none", "linear", "sqrt")
TRAIN_ACCURACY_MODES = ("eval", "running")
PRECISIONS = ("fp32", "bf16")
PARTS = ("fresh", "fixed")
DEFAULT_BATCH = 64  # per rank, where neither batch nor global_batch is given
DEFAULT_EPOCHS = 5  # where neither epochs nor steps is given
DEFAULT_COLLECTIVE = "auto"  # where none is given and the strategy takes any


def _at_least(low: float) -> Check:
    return lambda value: None if value >= low else f"at least {low}"


def _between(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"between {low} and {high}"


def _positive(value: float) -> str | None:
    return None if value > 0 and math.isfinite(value) else "a positive number"


def _one_of(names: tuple[str, ...]) -> Check:
    return lambda value: None if value in names else did_you_mean(str(value), names)


def _slow(value: str) -> str | None:
    parse_slow(value)
    return None


def option(
    default: Any, group: str, text: str, check: Check | None = None, registry: Registry | None = None
) -> Any:
    """A field with its help text, its group on the help page and its check."""
    metadata = {"group": group, "help": text, "check": check, "registry": registry}
    if isinstance(default, Mapping):
        return dataclasses.field(default_factory=lambda: MappingProxyType({}), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One configuration of one run. Constructing it checks every field and every combination."""

    data: str = option("digits", "what is trained", "data set (see `paceline data list`)", None, DATA_SETS)
    data_options: Options = option({}, "what is trained", "options of the data set: classes=10,train=5000")
    data_root: str | None = option(None, "what is trained", "folder with the data files (or PACELINE_DATA)")
    allow_unverified: bool = option(
        False, "what is trained", "accept files that fit in shape, count and labels but not in md5"
    )
    augment: str = option("", "what is trained", "batched augmentation: shift:2, crop:4, flip, or several")
    model: str = option("mnist_cnn_small", "what is trained", "model, or your module:factory", None, MODELS)
    model_options: Options = option({}, "what is trained", "options of the model: dropout=0.2")

    strategy: str = option("ddp", "how ranks cooperate", "how replicas learn together", None, STRATEGIES)
    strategy_options: Options = option({}, "how ranks cooperate", "options of the strategy: bucket_mb=8")
    collective: str | None = option(
        None,
        "how ranks cooperate",
        f"how tensors are combined (default {DEFAULT_COLLECTIVE}, or the first that the strategy takes)",
        None,
        COLLECTIVES,
    )
    collective_options: Options = option({}, "how ranks cooperate", "options of the collective")
    sync_batchnorm: bool = option(
        False, "how ranks cooperate", "batch norm by the statistics of all ranks' samples, not of each alone"
    )
    ranks: int = option(1, "how ranks cooperate", "number of training processes", _between(1, 1024))
    threads: int | None = option(
        None, "how ranks cooperate", "threads per rank (default: usable cores / ranks)", _at_least(1)
    )
    parts: str = option(
        "fresh",
        "how ranks cooperate",
        "fresh: every epoch deals the whole set anew; fixed: each training rank keeps a part of its own",
        _one_of(PARTS),
    )
    slow: str = option(
        "", "how ranks cooperate", "ranks made slower, to try unequal machines: 1:2.0 or 1:2.0~0.5", _slow
    )
    deadline: float = option(60.0, "how ranks cooperate", "seconds any wait may last", _positive)

    epochs: int | None = option(
        None, "how much", f"passes over the data (default {DEFAULT_EPOCHS})", _between(1, 10**9)
    )
    steps: int | None = option(None, "how much", "optimizer updates, instead of --epochs", _between(1, 10**9))
    batch: int | None = option(
        None, "how much", f"samples per rank and step (default {DEFAULT_BATCH})", _at_least(1)
    )
    global_batch: int | None = option(
        None, "how much", "samples per step over all ranks, instead of --batch", _at_least(1)
    )
    micro_batches: int = option(1, "how much", "pieces a rank's batch is accumulated in", _at_least(1))
    target: float | None = option(
        None, "how much", "stop at the first evaluation with this test accuracy (0.985)", _between(0, 1)
    )

    precision: str = option(
        "fp32",
        "how much",
        "fp32, or bf16 where a probe at the start shows that it is faster",
        _one_of(PRECISIONS),
    )

    optimizer: str = option("sgd", "optimizer", "sgd or adamw", _one_of(OPTIMIZERS))
    lr: float = option(0.05, "optimizer", "learning rate (its peak, with a schedule)", _positive)
    momentum: float = option(0.9, "optimizer", "momentum of sgd; beta 1 of adamw", _between(0, 0.9999))
    nesterov: bool = option(False, "optimizer", "Nesterov momentum (sgd)")
    weight_decay: float = option(0.0, "optimizer", "weight decay", _between(0, 10))
    clip_norm: float | None = option(
        None, "optimizer", "shorten an update's gradient to this 2-norm (default: leave it)", _positive
    )
    label_smoothing: float = option(0.0, "optimizer", "label smoothing", _between(0, 0.9))
    schedule: str = option("constant", "optimizer", "constant, cosine or one_cycle", _one_of(SCHEDULES))
    warmup: float | None = option(
        None,
        "optimizer",
        "share of the steps spent warming up (default 0; one_cycle 0.25)",
        _between(0, 0.99),
    )
    lr_rule: str = option(
        "none",
        "optimizer",
        "scale lr with the global batch: none, linear, sqrt",
        _one_of(LEARNING_RATE_RULES),
    )
    lr_base_batch: int | None = option(
        None, "optimizer", "the global batch that --lr is meant for, with --lr-rule", _at_least(1)
    )

    seed: int = option(
        0, "measuring", "decides weights, order, augmentation, dropout", _between(0, 2**31 - 1)
    )
    validation: int = option(
        0,
        "measuring",
        "the last so many training samples are evaluated instead of the test set, and not trained on: to "
        "choose a recipe",
        _at_least(0),
    )
    train_accuracy: str = option(
        "eval",
        "measuring",
        "eval: the whole training set in evaluation mode after each epoch; running: during training",
        _one_of(TRAIN_ACCURACY_MODES),
    )
    out: str | None = option(None, "measuring", "folder of the run (default: runs/<name>)")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_field(field, getattr(self, field.name))
        for problem in _impossible(self):
            raise ConfigError(problem)

    def replace(self, **changes: Any) -> RunConfig:
        """A checked copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values in the order of the fields (None = not given)."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def usual_collective(strategy: Any) -> str:
    """What a strategy's class is used over where nobody names one: the first it takes, else the default."""
    return str(next(iter(getattr(strategy, "collectives", None) or [DEFAULT_COLLECTIVE])))


def _check_field(field: dataclasses.Field[Any], value: Any) -> None:
    if value is None:
        return
    registry: Registry | None = field.metadata["registry"]
    if registry is not None:
        registry.check(value)
    check: Check | None = field.metadata["check"]
    if check is None:
        return
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{field.name} = nan is not a number")
    problem = check(value)
    if problem:
        shown = repr(value) if isinstance(value, str) else value
        joint = "; " if isinstance(value, str) else " must be "
        raise ConfigError(f"{field.name} = {shown}{joint}{problem}")


def _impossible(config: RunConfig) -> list[str]:
    """Combinations that cannot be, each with what to do about it."""
    problems = []
    if config.epochs is not None and config.steps is not None:
        problems.append("epochs and steps are both given; keep one of them")
    if config.batch is not None and config.global_batch is not None:
        problems.append("batch (per rank) and global_batch are both given; keep one of them")
    if config.global_batch is not None and config.global_batch < config.ranks:
        problems.append(
            f"global_batch = {config.global_batch} gives {config.ranks} ranks less than one sample each; "
            f"use at least {config.ranks} or fewer ranks"
        )
    smallest = config.batch or (config.global_batch or DEFAULT_BATCH * config.ranks) // config.ranks
    if config.micro_batches > smallest:
        problems.append(
            f"micro_batches = {config.micro_batches} cuts {smallest} samples per rank into pieces of less "
            f"than one; use at most {smallest}"
        )
    for rank in parse_slow(config.slow):
        if rank >= config.ranks:
            problems.append(f"slow names rank {rank}, but there are ranks 0 to {config.ranks - 1}")
    if config.nesterov and (config.optimizer != "sgd" or config.momentum == 0):
        problems.append("nesterov needs optimizer = 'sgd' and momentum > 0")
    if config.lr_rule != "none" and config.lr_base_batch is None:
        problems.append("lr_rule needs lr_base_batch: the global batch that lr was chosen for")
    if config.lr_base_batch is not None and config.lr_rule == "none":
        problems.append("lr_base_batch has no effect without lr_rule; add lr_rule = 'linear' or 'sqrt'")
    return problems
