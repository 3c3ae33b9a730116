"""A part of the training set in the place of the test set: nothing in both, nothing lost, the test set unseen."""

from __future__ import annotations

import pytest
import torch

from paceline.config import RunConfig
from paceline.data import Resident, prepare
from paceline.errors import ConfigError
from paceline.train.run import plan_for


def test_the_last_training_samples_are_evaluated_and_not_trained_on():
    prepared = prepare("digits")
    whole, cut = Resident(prepared), Resident(prepared, 300)
    assert (len(cut.train), len(cut.test)) == (1137, 300)
    assert torch.equal(torch.cat([cut.train.images, cut.test.images]), whole.train.images)
    assert torch.equal(torch.cat([cut.train.labels, cut.test.labels]), whole.train.labels)


def test_the_plan_trains_on_the_rest_and_says_so():
    plan = plan_for(RunConfig(validation=437, global_batch=100), prepare("digits"), None)
    assert (plan.train_size, plan.steps_per_epoch) == (1000, 10)
    assert any("the test set is not looked at" in notice for notice in plan.notices)


def test_something_must_be_left_to_train_on():
    with pytest.raises(ConfigError, match="leaves none of 1,437 samples"):
        plan_for(RunConfig(validation=1437), prepare("digits"), None)
