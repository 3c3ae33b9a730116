"""From a configuration to a finished run folder.

    configuration ─▶ names and options checked ─▶ data prepared ─▶ plan printed ─▶ folder claimed
                  ─▶ ranks started (or, under torchrun, this process is one) ─▶ summary.json

Everything that can be wrong is found before the first process starts. This process is the zygote: it has
imported torch and runs no tensor operation, because a fork after an OpenMP region would hang.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from paceline.atomic import write_json, write_text
from paceline.config import Plan, RunConfig, config_hash, make_plan, to_toml
from paceline.config.run import usual_collective
from paceline.data import Prepared, prepare
from paceline.data.augment import check_augment, parse_augment
from paceline.errors import ConfigError, RankFailed, UsageError
from paceline.launch import environment, local
from paceline.launch.environment import Place
from paceline.metrics.resources import usable_cores
from paceline.metrics.summary import note_losses
from paceline.registry import COLLECTIVES, MODELS, STRATEGIES
from paceline.strategies import Strategy
from paceline.train.build import build_model, check_lockstep, check_strategy
from paceline.train.rank import Assignment, run_rank


def execute(
    config: RunConfig,
    *,
    started: float,
    command: str,
    ranks_given: bool = True,
    scaling: str | None = None,
    variant: str | None = None,
    quiet: bool = False,
    tick: Callable[[], None] | None = None,
) -> Path:
    """Run one configuration; returns its folder. A failed run leaves failed.json there and raises."""
    place = environment.current()
    if place is not None:
        config = fitted(config, place, ranks_given)
        if losable_ranks(config):
            raise ConfigError(
                f"survive: {place.launcher} ends all ranks when one dies; start with paceline train, or "
                "leave survive out"
            )
    config = settled(config)
    check(config)
    prepared = prepare(config.data, config.data_root, config.allow_unverified, config.data_options)
    check_data(config, prepared)
    plan = plan_for(config, prepared, place)
    folder = Path()
    if place is None or place.rank == 0:
        folder = claim_folder(config)
        write_text(folder / "config.toml", to_toml(config.as_dict()))
        if not quiet:
            announce(config, plan, prepared, folder)
    assignment = Assignment(config, plan, prepared, folder, command, scaling, quiet, variant)
    if place is not None:
        run_rank(assignment, place)
    else:
        _start_ranks(assignment, started, tick)
    return folder


def _start_ranks(assignment: Assignment, started: float, tick: Callable[[], None] | None) -> None:
    """All ranks, from here; a failed run says so in its folder."""
    plan = assignment.plan
    function = functools.partial(run_rank, assignment)
    losable = losable_ranks(assignment.config)
    try:
        lost = local.start(
            function,
            plan.ranks,
            threads=plan.threads_per_rank,
            started=started,
            tick=tick,
            may_lose=losable,
        )
        if lost:
            note_losses(assignment.folder, {error.rank: str(error) for error in lost})
    except RankFailed as error:
        failed = {"error": str(error), "rank": error.rank, "details": error.details}
        write_json(assignment.folder / "failed.json", failed)
        raise
    except UsageError:  # found by a rank, but a mistake is a mistake: nothing was trained, nothing stays
        _give_back(assignment.folder)
        raise


def announce(config: RunConfig, plan: Plan, prepared: Prepared, folder: Path) -> None:
    """The plan, before any process starts."""
    lines = plan.lines(config)
    if not prepared.verified:
        lines.append(f"note      data not verified: {prepared.notice}")
    print("\n".join([*lines, f"folder    {folder}", ""]), file=sys.stderr, flush=True)


def fitted(config: RunConfig, place: Place, ranks_given: bool) -> RunConfig:
    """Under a launcher the world's size is the launcher's; a different --ranks is a contradiction."""
    if ranks_given and config.ranks != place.size:
        raise ConfigError(
            f"{place.launcher} started {place.size} ranks, but the configuration says "
            f"ranks = {config.ranks}; leave out --ranks"
        )
    return config.replace(ranks=place.size)


def settled(config: RunConfig) -> RunConfig:
    """With the collective named, so that everything that is written says which it was."""
    if config.collective is not None:
        return config
    return config.replace(collective=usual_collective(STRATEGIES.load(config.strategy)))


def check(config: RunConfig) -> None:
    """Options of a settled configuration against the constructors, and what a strategy says of itself."""
    parse_augment(config.augment)
    MODELS.check_options(config.model, config.model_options)
    COLLECTIVES.check_options(str(config.collective), config.collective_options)
    STRATEGIES.check_options(config.strategy, config.strategy_options)
    strategy = STRATEGIES.load(config.strategy)
    if config.sync_batchnorm:
        check_lockstep(strategy)
    check_strategy(config.strategy, strategy, config.collective, config.ranks)


def losable_ranks(config: RunConfig) -> frozenset[int]:
    """Ranks whose death the strategy survives."""
    strategy: type[Strategy] = STRATEGIES.load(config.strategy)
    return strategy.losable(config.ranks, config.strategy_options)


def check_data(config: RunConfig, prepared: Prepared) -> None:
    """Do augmentation and model take pictures of this shape?

    Our own models are built on the meta device: nothing is computed, so forking stays safe. A factory of
    the user's own may do anything, so only a rank calls it."""
    check_augment(parse_augment(config.augment), prepared.shape)
    if ":" not in config.model:
        with torch.device("meta"):
            build_model(config, prepared.shape, prepared.classes)


def plan_for(config: RunConfig, prepared: Prepared, place: Place | None) -> Plan:
    """The plan for this machine and this place in it."""
    local_ranks = place.local_size if place else config.ranks
    nodes = place.nodes if place else 1
    trainers = STRATEGIES.load(config.strategy).trainers(config.ranks, config.strategy_options)
    left = prepared.train_size - config.validation
    if left < 1:
        raise ConfigError(
            f"validation = {config.validation} leaves none of {prepared.train_size:,} samples to train on"
        )
    return make_plan(config, left, usable_cores(), local_ranks=local_ranks, nodes=nodes, trainers=trainers)


def claim_folder(config: RunConfig) -> Path:
    """A folder that no other run has: --out, or the next free name below runs/."""
    if config.out is not None:
        folder = Path(config.out)
        if any(folder.glob("journal-*.jsonl")) or (folder / "summary.json").exists():
            raise ConfigError(f"{folder} already holds a run; choose another --out or remove it")
        return _made(folder, exist_ok=True)
    digest = config_hash(config.as_dict())[:6]
    stem = f"{config.data}-{_safe(config.model)}-{_safe(config.strategy)}-p{config.ranks}-{digest}"
    for number in range(1, 10_000):
        folder = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not folder.exists():
            return _made(folder, exist_ok=False)
    raise ConfigError(f"runs/ holds 10,000 runs called {stem}; remove some or give --out")


def command_line() -> str:
    """The command that reproduces this run."""
    return shlex.join(["paceline", *sys.argv[1:]])


def _made(folder: Path, *, exist_ok: bool) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {os.strerror(error.errno or 0)}") from error
    return folder


def _give_back(folder: Path) -> None:
    """Remove what a run without results wrote; a folder with other files in it stays."""
    for pattern in ("config.toml", "journal-*.jsonl", "events.out.tfevents.*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _safe(name: str) -> str:
    return name.replace(":", "-").replace("/", "-")
