"""A study's axes become cells: one checked configuration each, in the order in which they run.

    for repeat: for scaling: for strategy: for collective: for batch: for ranks
    for repeat: for scaling: for variant:                  for batch: for ranks       where variants are given

Repeats are outermost, so that a disturbance of the machine falls on all cells and not on one of them.
Combinations that a strategy cannot have (single with two ranks) are left out, not failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.config import RunConfig, config_hash, merged
from paceline.config.run import usual_collective
from paceline.config.study import StudyConfig, slug
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
    variant: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """What study.json says of it."""
        return {
            "id": self.id,
            "scaling": self.scaling,
            "variant": self.variant,
            "strategy": self.config.strategy,
            "collective": self.config.collective,
            "ranks": self.config.ranks,
            "batch": self.batch,
            "repeat": self.repeat,
            "seed": self.config.seed,
        }


@dataclass(frozen=True)
class _Variant:
    """One way of cooperating: a strategy over a collective, or a table of the study's."""

    label: str
    keys: Mapping[str, Any]
    ranks: Sequence[int]
    name: str | None = None


def expand(study: StudyConfig, source: str = "study") -> list[Cell]:
    """All cells, checked; an impossible one is a one-line error that names it."""
    merged(RunConfig, {k: v for k, v in study.run.items() if k != "slow"}, source=f"{source} [run]")
    cells = [
        _cell(study, way, repeat, scaling, batch, ranks, source)
        for repeat, scaling, way, batch in itertools.product(
            range(study.repeats), study.scaling, _variants(study), study.batches
        )
        for ranks in way.ranks
        if _possible(way.keys["strategy"], way.keys["collective"], ranks)
    ]
    if not cells:
        raise ConfigError(f"{source}: no cell is possible with strategies {list(study.strategies)}")
    return cells


def _variants(study: StudyConfig) -> list[_Variant]:
    if not study.variants:
        return [
            _Variant(
                f"{strategy}-{collective}", {"strategy": strategy, "collective": collective}, study.ranks
            )
            for strategy in study.strategies
            for collective in study.collectives or [usual_collective(STRATEGIES.load(strategy))]
        ]
    found = []
    for variant in study.variants:
        strategy = variant.get("strategy", study.strategies[0])
        usual = study.collectives[0] if study.collectives else usual_collective(STRATEGIES.load(strategy))
        keys = {"strategy": strategy, "collective": usual}
        keys |= {key: value for key, value in variant.items() if key not in ("name", "ranks")}
        name = str(variant["name"])
        found.append(_Variant(slug(name), keys, variant.get("ranks", study.ranks), name))
    return found


def _possible(strategy: str, collective: str, ranks: int) -> bool:
    kind = STRATEGIES.load(strategy)
    enough = kind.most_ranks is None or ranks <= kind.most_ranks
    return enough and (kind.collectives is None or collective in kind.collectives)


def _cell(
    study: StudyConfig, way: _Variant, repeat: int, scaling: str, batch: int, ranks: int, source: str
) -> Cell:
    name = f"{scaling}-{way.label}-p{ranks}-b{batch}".replace(":", "-")
    seed = int(study.run.get("seed", 0)) + repeat
    size = {"global_batch": batch} if scaling == "strong" else {"batch": batch}
    try:
        own = {"ranks": ranks, "seed": seed, **size}
        config = merged(RunConfig, study.run, way.keys, own, source=source)
    except ConfigError as error:
        raise ConfigError(f"cell {name}: {error}") from error
    digest = config_hash(config.as_dict())
    return Cell(f"{name}-s{seed}-{digest[:8]}", config, scaling, batch, repeat, digest, way.name)
