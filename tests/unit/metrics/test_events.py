"""TensorBoard events that its own reader reads."""

from __future__ import annotations

from paceline.metrics.events import Events


def test_a_stock_reader_sees_the_scalars(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = Events(tmp_path)
    for step in (10, 20):
        events.scalars(step, {"loss/train": 1 / step, "accuracy/test": step / 100})
    events.close()
    reader = EventAccumulator(str(tmp_path)).Reload()
    assert sorted(reader.Tags()["scalars"]) == ["accuracy/test", "loss/train"]
    points = [(point.step, round(point.value, 6)) for point in reader.Scalars("accuracy/test")]
    assert points == [(10, 0.1), (20, 0.2)]
