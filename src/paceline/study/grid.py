"""A study's axes become cells: one checked configuration each, in the order in which they run.

    for repeat: for scaling: for strategy: for collective: for batch: for ranks

Repeats are outermost, so that a disturbance of the machine falls on all cells and not on one of them.
Combinations that a strategy cannot have (single with two ranks) are left out, not failed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from paceline.config import RunConfig, config_hash, merged
from paceline.config.run import usual_collective
from paceline.config.study import StudyConfig
from paceline.errors import ConfigError
from paceline.registry import STRATEGIES


@dataclass(frozen=True)
class Cell:
    """One run of a study; its id holds its configuration's hash, so a changed one is another cell."""

    id: str
    config: RunConfig
    scaling: str
    batch: int
    repeat: int
    digest: str

    def as_dict(self) -> dict[str, Any]:
        """What study.json says of it."""
        return {
            "id": self.id,
            "scaling": self.scaling,
            "strategy": self.config.strategy,
            "collective": self.config.collective,
            "ranks": self.config.ranks,
            "batch": self.batch,
            "repeat": self.repeat,
            "seed": self.config.seed,
        }


def expand(study: StudyConfig, source: str = "study") -> list[Cell]:
    """All cells, checked; an impossible one is a one-line error that names it."""
    shared = merged(RunConfig, study.run, source=f"{source} [run]")
    pairs = [
        (strategy, collective)
        for strategy in study.strategies
        for collective in study.collectives or [usual_collective(STRATEGIES.load(strategy))]
    ]
    cells = [
        _cell(shared, repeat, scaling, strategy, collective, batch, ranks)
        for repeat, scaling, (strategy, collective), batch in itertools.product(
            range(study.repeats), study.scaling, pairs, study.batches
        )
        for ranks in study.ranks
        if _possible(strategy, collective, ranks)
    ]
    if not cells:
        raise ConfigError(f"{source}: no cell is possible with strategies {list(study.strategies)}")
    return cells


def _possible(strategy: str, collective: str, ranks: int) -> bool:
    kind = STRATEGIES.load(strategy)
    enough = kind.most_ranks is None or ranks <= kind.most_ranks
    return enough and (kind.collectives is None or collective in kind.collectives)


def _cell(
    shared: RunConfig, repeat: int, scaling: str, strategy: str, collective: str, batch: int, ranks: int
) -> Cell:
    name = f"{scaling}-{strategy}-{collective}-p{ranks}-b{batch}".replace(":", "-")
    seed = shared.seed + repeat
    size = {"global_batch": batch} if scaling == "strong" else {"batch": batch}
    try:
        config = shared.replace(strategy=strategy, collective=collective, ranks=ranks, seed=seed, **size)
    except ConfigError as error:
        raise ConfigError(f"cell {name}: {error}") from error
    digest = config_hash(config.as_dict())
    return Cell(f"{name}-s{seed}-{digest[:8]}", config, scaling, batch, repeat, digest)
