"""What one observed rank does.

install the observers ─► be the script, as under `paceline run` ─► note how it ended
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from paceline.check._recorder import Recorder
from paceline.check._watch_data import DataWatch
from paceline.check._watch_gradients import GradientWatch
from paceline.check._watch_model import ModelWatch
from paceline.check._watch_world import WorldWatch
from paceline.check.observations import file_of
from paceline.launch.environment import Place
from paceline.metrics.resources import usable_cores


@contextlib.contextmanager
def observed(folder: Path, wanted: int, place: Place) -> Iterator[None]:
    """Whatever runs in here is observed; observations go to the folder."""
    recorder = Recorder(file_of(folder, place.rank), wanted)
    data = DataWatch(recorder)
    model = ModelWatch(recorder, data)
    gradients = GradientWatch(recorder, data, model)
    world = WorldWatch(recorder)
    for watch in (data, model, gradients, world):
        watch.install()
    gradients.on_first_step(lambda: _note_threads(recorder, place))
    gradients.on_step(world.step)
    how = "failed"
    try:
        yield
        how = "finished"
    finally:
        if recorder.ended:
            how = "stopped"
        if how == "finished":
            model.note_end()
        recorder.write("end", how=how, steps=recorder.steps)


def _note_threads(recorder: Recorder, place: Place) -> None:
    recorder.write(
        "threads", threads=torch.get_num_threads(), cores=usable_cores(), local_ranks=place.local_size
    )
