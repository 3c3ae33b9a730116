"""Which collective a run has where nobody names one: the strategy's own, else the usual one."""

from __future__ import annotations

import pytest

from paceline.config import RunConfig, merged
from paceline.config.run import DEFAULT_COLLECTIVE
from paceline.config.study import StudyConfig
from paceline.registry import STRATEGIES
from paceline.study.grid import expand
from paceline.train.run import check, settled


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_every_strategy_has_a_collective_it_can_use(name):
    kind = STRATEGIES.load(name)
    config = settled(RunConfig(strategy=name, ranks=kind.most_ranks or 2))
    check(config)
    assert config.collective == (kind.collectives or [DEFAULT_COLLECTIVE])[0]
    assert settled(config) is config


def test_a_study_that_names_none_leaves_no_strategy_out():
    study = merged(StudyConfig, {"strategies": ["ddp", "torch_ddp"], "ranks": [2]}, source="study")
    assert [(cell.config.strategy, cell.config.collective) for cell in expand(study)] == [
        ("ddp", DEFAULT_COLLECTIVE),
        ("torch_ddp", "native"),
    ]


def test_a_study_that_names_some_leaves_out_what_cannot_be():
    axes = {"strategies": ["ddp", "torch_ddp"], "collectives": ["ring"], "ranks": [2]}
    cells = expand(merged(StudyConfig, axes, source="study"))
    assert [(cell.config.strategy, cell.config.collective) for cell in cells] == [("ddp", "ring")]
