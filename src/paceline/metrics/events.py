"""The same numbers for a stock TensorBoard: one event file a run, so several runs make one figure.

Written with TensorBoard's own event writer; its torch wrapper is not used (0.8 s slower to import).
A scalar costs about 50 µs, so this is called a few times an epoch and never in a step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path


class Events:
    """Scalars of one run, by global step."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Several named numbers at one step."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=points)))

    def close(self) -> None:
        """Everything on disk."""
        self._writer.close()
