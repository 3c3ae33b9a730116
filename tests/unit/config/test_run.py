"""Every field and every combination of a configuration is checked when it is made."""

from __future__ import annotations

import dataclasses

import pytest

from paceline.config import RunConfig
from paceline.config.study import StudyConfig
from paceline.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"model": "mnist_cn"}, "no model 'mnist_cn'; did you mean 'mnist_cnn'?"),
        ({"strategy": "zzz"}, "no strategy 'zzz'; there is ddp, "),
        ({"collective": "natve"}, "did you mean 'native'?"),
        ({"data": "imagenet"}, "no data set 'imagenet'"),
        ({"ranks": 0}, "ranks = 0 must be between 1 and 1024"),
        ({"lr": 0.0}, "lr = 0.0 must be a positive number"),
        ({"lr": float("inf")}, "must be a positive number"),
        ({"lr": float("nan")}, "lr = nan is not a number"),
        ({"momentum": 1.0}, "between 0 and 0.9999"),
        ({"optimizer": "adam"}, "optimizer = 'adam'; did you mean 'adamw'?"),
        ({"schedule": "linear"}, "schedule = 'linear'"),
        ({"target": 98.5}, "target = 98.5 must be between 0 and 1"),
        ({"epochs": 1, "steps": 1}, "epochs and steps are both given"),
        ({"batch": 1, "global_batch": 1}, "batch (per rank) and global_batch are both given"),
        ({"global_batch": 3, "ranks": 4}, "less than one sample each; use at least 4"),
        ({"batch": 4, "micro_batches": 5}, "use at most 4"),
        ({"global_batch": 9, "ranks": 2, "micro_batches": 5}, "use at most 4"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov needs"),
        ({"lr_rule": "linear"}, "lr_rule needs lr_base_batch"),
        ({"lr_base_batch": 64}, "has no effect without lr_rule"),
    ],
)
def test_impossible_configurations_are_one_line(values, expected):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**values)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"ranks": ()}, "ranks = [] must be different whole numbers"),
        ({"ranks": (1, 1)}, "must be different"),
        ({"scaling": ("stron",)}, "did you mean 'strong'?"),
        ({"strategies": ("dpp",)}, "did you mean 'ddp'?"),
        ({"repeats": 0}, "repeats = 0 must be between 1 and 1000"),
        ({"targets": (98.5,)}, "must be accuracies between 0 and 1"),
        ({"run": {"ranks": 3}}, "[run] ranks is decided by the study's axes"),
    ],
)
def test_impossible_studies_are_one_line(values, expected):
    with pytest.raises(ConfigError) as caught:
        StudyConfig(**values)
    assert expected in str(caught.value)


def test_a_configuration_is_frozen_and_its_copy_is_checked():
    config = RunConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lr = 1.0
    with pytest.raises(ConfigError):
        config.replace(ranks=-1)
    assert config.replace(ranks=2).ranks == 2


def test_every_field_can_be_explained():
    for kind in (RunConfig, StudyConfig):
        for field in dataclasses.fields(kind):
            assert field.metadata["help"] and field.metadata["group"], field.name
