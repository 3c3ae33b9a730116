"""A model whose rank kills itself in the middle of training, so that real deaths can be had on order.

--model cases.mortal:model     MORTAL = "1:7": rank 1 dies in its 7th training step, by SIGKILL
                               MORTAL = "1:evaluating": as soon as it evaluates
"""

from __future__ import annotations

import os
import signal

from torch import nn


class Mortal(nn.Module):
    """Two layers, and a count of the training steps."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, classes))
        self.steps = 0
        rank, _, self.last = os.environ["MORTAL"].partition(":")
        self.mortal = rank == os.environ["RANK"]

    def forward(self, images):
        self.steps += self.training
        now = self.last == str(self.steps) if self.training else self.last == "evaluating"
        if self.mortal and now:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layers(images)


def model(shape, classes):
    channels, height, width = shape
    return Mortal(channels * height * width, classes)
