"""Variants: what sets each apart, where its ranks come from, and what it may not hold."""

from __future__ import annotations

import pytest

from paceline.config import merged, read_toml, to_toml
from paceline.config.study import StudyConfig
from paceline.errors import ConfigError
from paceline.study.grid import expand

AGAINST = {
    "ranks": [4],
    "batches": [64],
    "variants": [
        {"name": "all-reduce", "strategy": "ddp"},
        {"name": "server, rank 1 slow", "strategy": "parameter_server", "ranks": [5],
         "strategy_options": {"mode": "async"}, "slow": "1:2"},
    ],
    "run": {"lr": 0.02},
}  # fmt: skip


def study(**changes) -> StudyConfig:
    return merged(StudyConfig, AGAINST | changes)


def test_each_variant_is_the_shared_run_with_its_own_keys():
    first, second = expand(study())
    assert (first.config.strategy, first.config.ranks, first.variant) == ("ddp", 4, "all-reduce")
    assert (second.config.strategy, second.config.ranks, second.config.slow) == ("parameter_server", 5, "1:2")
    assert dict(second.config.strategy_options) == {"mode": "async"}
    assert second.id.startswith("strong-server-rank-1-slow-p5-b64-s0-")
    assert first.config.lr == second.config.lr == 0.02
    assert first.as_dict()["variant"] == "all-reduce"


def test_a_study_with_variants_is_read_back_as_it_was_written(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(to_toml(study().as_dict()))
    assert merged(StudyConfig, read_toml(path)).as_dict() == study().as_dict()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"variants": [{"strategy": "ddp"}]}, "names"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, "names"),
        ({"variants": [{"name": "a", "batch": 3}]}, "batch is the study's to decide"),
        ({"variants": [{"name": "a", "ranks": 3}]}, "must be a list"),
        ({"strategies": ["ddp", "single"]}, "variants name their own"),
        ({"compare": "second"}, "did you mean 'seconds'"),
    ],
)
def test_what_a_study_refuses(changes, said):
    with pytest.raises(ConfigError, match=said):
        study(**changes)


def test_an_unknown_key_of_a_variant_names_the_variant():
    with pytest.raises(ConfigError, match=r"sticky.*unknown key 'slowness'"):
        expand(study(variants=[{"name": "sticky", "slowness": 2}]))
