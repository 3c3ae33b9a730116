"""What a seat gets is its part of what one seat would get, to the last bit, augmented or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paceline.data import Feed, Order, Resident, prepare
from paceline.errors import ConfigError, DataError

SIZE = 70


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_CACHE", str(tmp_path_factory.mktemp("prepared")))
        return Resident(
            prepare("synthetic", options={"shape": "3x9x8", "classes": 4, "train": SIZE, "test": 11})
        )


def test_resident_holds_the_prepared_arrays(data):
    assert (len(data.train), len(data.test)) == (SIZE, 11)
    assert (data.shape, data.train.shape, data.classes) == ((3, 9, 8), (3, 9, 8), 4)
    assert data.train.images.dtype == torch.uint8
    assert data.train.labels.dtype == torch.int64
    stored = np.load(data.prepared.folder / "train_images.npy")
    assert np.array_equal(data.train.images.numpy(), stored)


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
@pytest.mark.parametrize("index", [[3], [5, 0, 5, 69], list(range(SIZE))])
def test_a_batch_is_gathered_and_normalised(data, index, kind):
    images, labels = data.train.batch(kind(index))
    prepared = data.prepared
    raw = data.train.images.numpy()[index] / 255
    mean, std = (np.reshape(values, (3, 1, 1)) for values in (prepared.mean, prepared.std))
    assert images.dtype == torch.float32
    assert np.allclose(images.numpy(), (raw - mean) / std, atol=1e-5)
    assert labels.tolist() == data.train.labels.numpy()[index].tolist()


def test_the_training_part_has_mean_0_and_deviation_1(data):
    images, _ = data.train.batch(np.arange(SIZE))
    assert torch.allclose(images.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(images.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


def test_an_empty_batch_has_the_right_shape(data):
    images, labels = data.train.batch(np.empty(0, np.int64))
    assert (images.shape, images.dtype) == ((0, 3, 9, 8), torch.float32)
    assert (labels.shape, labels.dtype) == ((0,), torch.int64)


def test_a_write_by_mistake_does_not_reach_the_file(data):
    again = Resident(data.prepared)
    again.train.images[0] = 255 - again.train.images[0]
    assert not torch.equal(again.train.images[0], data.train.images[0])
    assert np.array_equal(np.load(data.prepared.folder / "train_images.npy"), data.train.images.numpy())


def test_a_prepared_set_that_went_away(data):
    import dataclasses

    gone = dataclasses.replace(data.prepared, folder=data.prepared.folder / "gone")
    with pytest.raises(DataError, match="gone or damaged"):
        Resident(gone)


def batches(data, augment, batch, seat=(0, 1), position=0, epoch=2, seed=5):
    feed = Feed(data.train, Order(SIZE, seed), augment=augment)
    return list(feed.epoch(epoch, batch, [seat], position))


@pytest.mark.parametrize("augment", ["", "shift:2,flip", "crop:3,flip"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("batch", [16, 64])
def test_the_seats_together_are_one_seat(data, augment, count, batch):
    alone = batches(data, augment, batch)
    dealt = [batches(data, augment, batch, (seat, count)) for seat in range(count)]
    for step, (images, labels, total) in enumerate(alone):
        pieces = [seat[step] for seat in dealt]
        assert torch.equal(torch.cat([piece.images for piece in pieces]), images)
        assert torch.equal(torch.cat([piece.labels for piece in pieces]), labels)
        assert {piece.total for piece in pieces} == {total} == {len(labels)}
    assert sum(total for *_, total in alone) == SIZE


@pytest.mark.parametrize("augment", ["", "shift:1,flip"])
def test_a_seat_may_get_nothing(data, augment):
    last = batches(data, augment, 69, (6, 7))[-1]
    assert (last.images.shape, last.labels.shape, last.total) == ((0, 3, 9, 8), (0,), 1)


def test_resuming_is_going_on(data):
    every = batches(data, "shift:2,flip", 16, (1, 2))
    resumed = batches(data, "shift:2,flip", 16, (1, 2), position=32)
    assert len(resumed) == len(every) - 2
    for a, b in zip(resumed, every[2:], strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)


def test_augmentation_changes_with_step_epoch_and_seed(data):
    def changed(**settings):
        plain, moved = (batches(data, augment, 32, **settings) for augment in ("", "flip"))
        return [[not torch.equal(a, b) for a, b in zip(p.images, m.images, strict=True)]
                for p, m in zip(plain, moved, strict=True)]  # fmt: skip

    first = changed()
    assert first == changed()
    assert first[0] != first[1]
    assert first[0] != changed(epoch=3)[0]
    assert first[0] != changed(seed=6)[0]


def test_impossible_feeds(data):
    with pytest.raises(ConfigError, match="the order is for 3 samples, the part has 70"):
        Feed(data.train, Order(3, 0))
    with pytest.raises(ConfigError, match="at most 7"):
        Feed(data.train, Order(SIZE, 0), augment="crop:8")
