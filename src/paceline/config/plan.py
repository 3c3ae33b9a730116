"""Plan: everything that follows from a configuration, the size of a data set and a machine.

It is computed once, before any process starts, printed, and then used by every rank; nothing derives the
same number a second time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.config.run import DEFAULT_BATCH, DEFAULT_EPOCHS, RunConfig
from paceline.config.slow import parse_slow
from paceline.errors import ConfigError


@dataclass(frozen=True)
class Plan:
    """The derived values of one run."""

    ranks: int
    trainers: int
    nodes: int
    threads_per_rank: int
    usable_cores: int
    train_size: int
    global_batch: int
    steps_per_epoch: int
    steps: int
    epochs: int
    samples: int
    learning_rate: float
    warmup_steps: int
    notices: tuple[str, ...]

    @property
    def batch(self) -> float:
        """Samples per training rank and step (a mean where they are dealt unevenly)."""
        share = self.global_batch / self.trainers
        return int(share) if share.is_integer() else share

    def lines(self, config: RunConfig) -> list[str]:
        """The plan as a user reads it before anything starts."""
        pieces = f", each in {config.micro_batches} micro-batches" if config.micro_batches > 1 else ""
        where = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        clip = f", gradients clipped to {config.clip_norm:g}" if config.clip_norm else ""
        decay = f", weight decay {config.weight_decay:g}" if config.weight_decay else ""
        last = self.train_size - (self.steps_per_epoch - 1) * self.global_batch
        short = f" (the last of each epoch: {last})" if last != self.global_batch else ""
        rows = {
            "data": f"{config.data}, {self.train_size:,} training samples",
            "model": config.model + (", batch norm over all ranks" if config.sync_batchnorm else ""),
            "ranks": f"{self.ranks}{where} × {_count(self.threads_per_rank, 'thread')}, "
            f"{config.strategy} over {config.collective}{self._servers()}",
            "step": f"{self.global_batch} samples{short} = {self.trainers} × {self.batch:g}{pieces}",
            "length": f"{_count(self.epochs, 'epoch')} × {self.steps_per_epoch} steps, "
            f"{self.steps:,} in all, {self.samples:,} samples",
            "optimizer": f"{config.optimizer}, learning rate {self.learning_rate:g} {self._rule(config)}, "
            f"momentum {config.momentum:g}{decay}{clip}",
        }
        return [f"{name:<10}{text}" for name, text in rows.items()] + [
            f"note      {text}" for text in self.notices
        ]

    def _servers(self) -> str:
        serving = self.ranks - self.trainers
        return f", {_count(serving, 'rank')} serving" if serving else ""

    def _rule(self, config: RunConfig) -> str:
        warm = f" after {self.warmup_steps} steps of warm-up" if self.warmup_steps else ""
        scaled = "" if config.lr_rule == "none" else f", {config.lr:g} scaled by the {config.lr_rule} rule"
        return f"({config.schedule}{warm}{scaled})"


def make_plan(
    config: RunConfig,
    train_size: int,
    usable_cores: int,
    *,
    local_ranks: int | None = None,
    nodes: int = 1,
    trainers: int | None = None,
) -> Plan:
    """Derive and check; a plan that cannot work is a one-line error."""
    trainers = trainers or config.ranks
    global_batch = config.global_batch or (config.batch or DEFAULT_BATCH) * trainers
    _check_step(config, global_batch, train_size, trainers)
    steps_per_epoch = math.ceil(train_size / global_batch)
    steps = config.steps or (config.epochs or DEFAULT_EPOCHS) * steps_per_epoch
    epochs = math.ceil(steps / steps_per_epoch)
    whole, rest = divmod(steps, steps_per_epoch)
    local_ranks = local_ranks or config.ranks
    threads = config.threads or max(1, usable_cores // local_ranks)
    return Plan(
        ranks=config.ranks,
        trainers=trainers,
        nodes=nodes,
        threads_per_rank=threads,
        usable_cores=usable_cores,
        train_size=train_size,
        global_batch=global_batch,
        steps_per_epoch=steps_per_epoch,
        steps=steps,
        epochs=epochs,
        samples=whole * train_size + rest * global_batch,
        learning_rate=scaled_learning_rate(config, global_batch),
        warmup_steps=round(steps * warmup_share(config)),
        notices=tuple(_notices(config, global_batch, trainers, usable_cores, local_ranks, threads)),
    )


def _check_step(config: RunConfig, global_batch: int, train_size: int, trainers: int) -> None:
    """Can a step of that many samples be dealt?"""
    if global_batch > train_size:
        raise ConfigError(
            f"a step of {global_batch} samples is more than the {train_size} of {config.data!r}; "
            f"use --global-batch {train_size} or less"
        )
    if config.parts == "fixed" and global_batch % trainers:
        raise ConfigError(
            f"a step of {global_batch} samples cannot be dealt evenly from {trainers} fixed parts; use a "
            f"global batch that {trainers} divides, or parts = 'fresh'"
        )


def warmup_share(config: RunConfig) -> float:
    """The share of steps spent warming up; one-cycle rises for a quarter of them unless told otherwise."""
    if config.warmup is not None:
        return config.warmup
    return 0.25 if config.schedule == "one_cycle" else 0.0


def scaled_learning_rate(config: RunConfig, global_batch: int) -> float:
    """The learning rate for this global batch, by the rule the user chose."""
    ratio = global_batch / (config.lr_base_batch or global_batch)
    return config.lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[config.lr_rule]


def dealt(global_batch: int, ranks: int) -> list[int]:
    """How many samples of a full step each rank gets: sizes that differ by one at most, the first larger."""
    share, extra = divmod(global_batch, ranks)
    return [share + (rank < extra) for rank in range(ranks)]


def _notices(
    config: RunConfig, global_batch: int, trainers: int, cores: int, local_ranks: int, threads: int
) -> Sequence[str]:
    notices = []
    if local_ranks * threads > cores:
        ranks = f"{local_ranks} ranks × {_count(threads, 'thread')}"
        why = "; more ranks than cores cannot make this faster" if local_ranks > cores else ""
        notices.append(f"oversubscribed: {ranks} share {_count(cores, 'core')}{why}")
    if global_batch % trainers:
        sizes = ", ".join(map(str, dealt(global_batch, trainers)))
        notices.append(f"a step of {global_batch} does not divide by {trainers}: dealt as {sizes}")
    for rank, slowness in parse_slow(config.slow).items():
        varied = f", give or take {slowness.jitter:.0%} of that" if slowness.jitter else ""
        notices.append(f"rank {rank} is made to take {slowness.factor:g} times as long a step{varied}")
    if config.validation:
        notices.append(
            f"'test' is the last {config.validation:,} training samples, which are not trained on; the test "
            "set is not looked at"
        )
    if config.target is not None and not config.validation:
        notices.append(
            f"stops at the first evaluation with {config.target:.2%} test accuracy: the test set decides "
            "when to stop, so that accuracy is no estimate of a new sample's"
        )
    return notices


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
