"""One rank: build a dozen things, one line each, run the loop, leave a complete journal.

Runs the same under our own launcher and under torchrun. Random numbers: the model is built from the run's
seed on every rank (and rank 0's is sent to all), the order and the augmentation of the data depend on seed
and position alone, and only what must differ between ranks (dropout) is seeded by rank.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimizer imports it: 0.9 s, here once in the zygote and not in every rank

from paceline.comm.checked import checked
from paceline.comm.collectives import Collective
from paceline.comm.measured import Measured
from paceline.comm.regrouped import Regrouped
from paceline.comm.world import World, joined
from paceline.config import Plan, RunConfig, config_hash
from paceline.config.plan import dealt
from paceline.config.slow import parse_slow
from paceline.data import Order, Prepared
from paceline.data.feed import Feed
from paceline.data.resident import Resident
from paceline.launch.environment import Place
from paceline.metrics import resources
from paceline.metrics.clock import Clock, Meter
from paceline.metrics.journal import Journal
from paceline.metrics.summary import summarise
from paceline.registry import COLLECTIVES, STRATEGIES
from paceline.strategies import Strategy
from paceline.train.brake import Brake
from paceline.train.build import build_model, over_all_ranks
from paceline.train.loop import Loop
from paceline.train.optimize import make_optimizer
from paceline.train.precision import Probe, autocast, full, probe
from paceline.train.progress import Progress, Shown, Silent
from paceline.train.step import Step


@dataclass(frozen=True)
class Assignment:
    """What every rank of a run is told before it starts."""

    config: RunConfig
    plan: Plan
    prepared: Prepared
    folder: Path
    command: str
    scaling: str | None = None
    quiet: bool = False
    variant: str | None = None
    """What a study calls this way of cooperating."""


def run_rank(assignment: Assignment, place: Place) -> None:
    """Join, train, record; rank 0 merges the journals when all are complete."""
    torch.set_num_threads(assignment.plan.threads_per_rank)
    with joined(place, assignment.config.deadline) as world, ExitStack() as owned:
        folder = Path(world.agree("run folder", str(assignment.folder)))
        assignment = dataclasses.replace(assignment, folder=folder)
        with closing(Journal(assignment.folder, world.rank)) as journal:
            collective = _train(assignment, place, world, journal, owned)
        collective.barrier()
        if world.rank == 0:
            summarise(assignment.folder)


def _train(
    assignment: Assignment, place: Place, world: World, journal: Journal, owned: ExitStack
) -> Collective:
    config, plan = assignment.config, assignment.plan
    clock, meter = Clock(), Meter()
    collective, strategy = _cooperation(config, world, meter, owned)
    data = Resident(assignment.prepared, config.validation)
    torch.manual_seed(config.seed)
    model = build_model(config, data.shape, data.classes).to(world.device)
    optimizer = make_optimizer(config, model.parameters(), plan.learning_rate)
    strategy.clip_norm = config.clip_norm
    found = _probe(assignment, model, data, collective) if config.precision == "bf16" else None
    model = over_all_ranks(model, strategy) if config.sync_batchnorm else model
    module = strategy.attach(model, optimizer)
    torch.manual_seed(world.own_seed(config.seed))
    feed = _feed(config, plan, data)
    step = Step(
        module,
        strategy,
        clock,
        meter,
        micro_batches=config.micro_batches,
        label_smoothing=config.label_smoothing,
        precision=autocast(world.device) if found and found.chosen else full,
        brake=Brake(parse_slow(config.slow).get(world.rank), world.own_seed(config.seed)),
    )
    progress: Progress = Shown(assignment.folder, quiet=assignment.quiet) if world.rank == 0 else Silent()
    owned.callback(progress.end)
    loop = Loop(
        config, plan, model, optimizer, strategy, collective, data, feed, step,
        clock, meter, journal, progress, world.device,
    )  # fmt: skip
    chosen = ", ".join(collective.uses)
    journal.write("start", **_start(assignment, place, strategy, model), collective_uses=chosen)
    if world.rank == 0:
        _note(journal, progress, plan, found)
    strategy.run(loop)
    journal.write("end", **_end(loop, meter), account=strategy.account())
    return collective


def _cooperation(
    config: RunConfig, world: World, meter: Meter, owned: ExitStack
) -> tuple[Collective, Strategy]:
    """Collective and strategy; both are given back with `owned`, however the run ends."""
    collective = _collective(config, world)
    owned.callback(collective.close)
    measured = Measured(collective, meter)
    strategy: Strategy = STRATEGIES.make(
        config.strategy, world, measured, meter, options=config.strategy_options
    )
    owned.callback(strategy.close)
    return collective, strategy


def _collective(config: RunConfig, world: World) -> Collective:
    """The run's, with its calls compared; one that can go on without a rank where the strategy can."""

    def made(some: World) -> Collective:
        return checked(
            COLLECTIVES.make(str(config.collective), some, options=config.collective_options), some
        )

    losable = STRATEGIES.load(config.strategy).losable(config.ranks, config.strategy_options)
    return Regrouped(made, world) if losable else made(world)


def _note(journal: Journal, progress: Progress, plan: Plan, found: Probe | None) -> None:
    """What a user should know goes into the journal; the plan was printed before the ranks started."""
    said = [found.line()] if found else []
    for line in said:
        progress.note(line)
    for line in (*plan.notices, *said):
        journal.write("note", text=line)


def _feed(config: RunConfig, plan: Plan, data: Resident) -> Feed:
    parts = plan.trainers if config.parts == "fixed" else 1
    return Feed(data.train, Order(len(data.train), config.seed, parts=parts), augment=config.augment)


def _probe(assignment: Assignment, model: torch.nn.Module, data: Resident, collective: Collective) -> Probe:
    """Is bfloat16 faster for this run's micro-batches? Asked before any layer of the model communicates."""
    samples = max(dealt(assignment.plan.global_batch, assignment.plan.trainers))
    return probe(model, data.shape, data.classes, -(-samples // assignment.config.micro_batches), collective)


def _start(
    assignment: Assignment, place: Place, strategy: Strategy, model: torch.nn.Module
) -> dict[str, Any]:
    config, prepared = assignment.config, assignment.prepared
    now = time.time()
    line = {
        "rank": place.rank,
        "size": place.size,
        "boot_id": resources.boot_id(),
        "startup_seconds": now - place.started,
        "lockstep": strategy.lockstep,
        "in_rounds": strategy.in_rounds,
    }
    if place.rank:
        return line
    return line | {
        "id": assignment.folder.name,
        "launcher": place.launcher,
        "scaling": assignment.scaling,
        "variant": assignment.variant,
        "config": config.as_dict(),
        "config_hash": config_hash(config.as_dict()),
        "plan": dataclasses.asdict(assignment.plan) | {"batch": assignment.plan.batch},
        "parameters": sum(p.numel() for p in model.parameters()),
        "data_bytes": prepared.data_bytes,
        "data_verified": prepared.verified,
        "data_notice": prepared.notice,
        "machine": resources.machine(),
        "versions": resources.versions(),
        "commit": resources.commit(),
        "command": assignment.command,
        "started": place.started,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(place.started)),
    }


def _end(loop: Loop, meter: Meter) -> dict[str, Any]:
    return {
        "time": time.time(),
        "steps": loop.done,
        "messages": meter.calls,
        "bytes": meter.bytes,
        "peak_memory_bytes": resources.peak_memory_bytes(),
        "proportional_memory_bytes": resources.proportional_memory_bytes(),
    }
