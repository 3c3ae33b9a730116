"""StudyConfig: the axes of a grid of runs, and what all its runs share.

strong scaling   the *global* batch is fixed: p ranks share the same step, updates stay the same
weak scaling     the batch *per rank* is fixed: the global batch grows with p, updates get fewer
variant          a name and what sets it apart: a strategy, its options, slow ranks, a learning rate, …
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from paceline.config.run import Options, option
from paceline.errors import ConfigError, did_you_mean, one_of
from paceline.registry import COLLECTIVES, STRATEGIES

SCALINGS = ("strong", "weak")
COMPARED = ("samples", "updates", "seconds")

# What a variant may not hold: its batch is the axis', so that variants can be compared.
NOT_IN_VARIANTS = ("batch", "global_batch", "out", "seed")

# A study decides these itself, cell by cell; everything else of RunConfig may stand in [run].
DECIDED_BY_GRID = ("ranks", "strategy", "collective", "batch", "global_batch", "out")


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """One study. Constructing it checks the axes; the cells check themselves."""

    name: str = option("study", "study", "short name, for file names and headings")
    title: str = option("", "study", "heading of the report")
    question: str = option("", "study", "what the study asks, in a sentence")
    ranks: tuple[int, ...] = option((1, 2), "axes", "numbers of processes: 1,2,4,8")
    scaling: tuple[str, ...] = option(
        ("strong",), "axes", "strong (fixed global batch), weak (fixed batch per rank), or both"
    )
    strategies: tuple[str, ...] = option(("ddp",), "axes", "strategies")
    collectives: tuple[str, ...] = option(
        (), "axes", "collectives (default: as of `paceline train`, by the strategy)"
    )
    batches: tuple[int, ...] = option(
        (128,), "axes", "batches: of the whole step (strong), of one rank (weak)"
    )
    variants: tuple[Options, ...] = option(
        (),
        "axes",
        "instead of strategies and collectives: tables of a name and any keys of a run, and ranks of its own",
    )
    compare: str = option("samples", "study", "compare cells at equal samples, updates or seconds")
    repeats: int = option(1, "axes", "repeats of every cell, each with a seed of its own")
    targets: tuple[float, ...] = option((), "axes", "test accuracies to report the time to: 0.9,0.98")
    run: Options = option({}, "runs", "what all runs share, by the names of `paceline train`")

    def __post_init__(self) -> None:
        _check_axis("ranks", self.ranks, 1, 1024)
        _check_axis("batches", self.batches, 1, 10**9)
        _check_names("scaling", self.scaling, SCALINGS)
        _check_names("strategies", self.strategies, STRATEGIES.names())
        if self.collectives:
            _check_names("collectives", self.collectives, COLLECTIVES.names())
        if not 1 <= self.repeats <= 1000:
            raise ConfigError(f"repeats = {self.repeats} must be between 1 and 1000")
        if any(not 0 < target < 1 for target in self.targets):
            raise ConfigError(f"targets = {list(self.targets)} must be accuracies between 0 and 1 (0.9)")
        one_of("compare", self.compare, COMPARED)
        for key in DECIDED_BY_GRID:
            if key in self.run:
                raise ConfigError(f"[run] {key} is decided by the study's axes; remove it from [run]")
        _check_variants(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain values in the order of the fields."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()} | {
            "variants": [dict(variant) for variant in self.variants],
            "run": dict(self.run),
        }


def _check_axis(name: str, values: tuple[int, ...], low: int, high: int) -> None:
    if not values or len(set(values)) < len(values) or not all(low <= v <= high for v in values):
        raise ConfigError(f"{name} = {list(values)} must be different whole numbers from {low} to {high}")


def _check_names(name: str, values: tuple[str, ...], known: tuple[str, ...] | list[str]) -> None:
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"{name} = {list(values)} must name at least one, and each once")
    for value in values:
        if value not in known and ":" not in value:
            raise ConfigError(f"{name}: no {value!r}; {did_you_mean(value, known)}")


def _check_variants(study: StudyConfig) -> None:
    """Each has a name of its own, and nothing that the axes decide."""
    slugs = [slug(str(variant.get("name", ""))) for variant in study.variants]
    if not all(slugs) or len(set(slugs)) < len(slugs):
        raise ConfigError(f"variants: names {slugs} must be given, and each be another")
    if study.variants and (len(study.strategies) > 1 or len(study.collectives) > 1):
        raise ConfigError(
            "variants name their own strategy and collective; leave out strategies, collectives"
        )
    for variant in study.variants:
        for key in NOT_IN_VARIANTS:
            if key in variant:
                raise ConfigError(
                    f"variant {variant['name']!r}: {key} is the study's to decide; leave it out"
                )
        ranks = variant.get("ranks", list(study.ranks))
        if not isinstance(ranks, list) or not all(type(p) is int for p in ranks):
            raise ConfigError(f"variant {variant['name']!r}: ranks = {ranks!r} must be a list of numbers")
        _check_axis(f"variant {variant['name']!r}: ranks", tuple(ranks), 1, 1024)


def slug(name: str) -> str:
    """A name as part of a file's: letters, digits and dashes."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name).split())
