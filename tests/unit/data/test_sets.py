"""Each data set reads its own format; the real files where they are."""

from __future__ import annotations

import io
import pickle
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

from paceline.data import prepare
from paceline.data.definition import Arrays, check_arrays
from paceline.data.sets.cifar10 import Cifar10
from paceline.data.sets.cifar100 import Cifar100
from paceline.data.sets.digits import Digits
from paceline.data.sets.svhn import Svhn
from paceline.data.sets.synthetic import Synthetic
from paceline.errors import ConfigError, DataError
from paceline.registry import DATA_SETS

RNG = np.random.default_rng(0)


def test_every_set_declares_what_it_is():
    named = "cifar10 cifar100 digits fashion_mnist mnist svhn synthetic"
    assert DATA_SETS.names() == named.split()
    for name in DATA_SETS.names():
        data_set = DATA_SETS.make(name)
        assert len(data_set.shape) == 3
        for file in (file for layout in data_set.layouts for file in layout):
            assert len(file.md5) == 32, file
            assert all(url.endswith(f"/{file.name}") for url in file.mirrors), file


def test_digits_are_all_there_and_split_once_and_for_all():
    digits = prepare("digits")
    assert (digits.train_size, digits.test_size, digits.verified, digits.notice) == (1437, 360, True, "")
    arrays = Digits().read([Digits.embedded / file.name for file in Digits.layouts[0]])
    check_arrays(Digits(), arrays, "digits")
    labels = np.concatenate([arrays.train_labels, arrays.test_labels])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as published
    assert np.bincount(arrays.test_labels, minlength=10).min() >= 25
    assert arrays.test_labels[:10].tolist() == [8, 9, 9, 2, 2, 8, 3, 5, 8, 0]


def test_digits_are_resized_like_a_bilinear_picture_viewer():
    arrays = Digits().read([Digits.embedded / file.name for file in Digits.layouts[0]])
    assert arrays.train_images.max() == 255
    assert arrays.train_images.min() == 0
    from scipy.ndimage import zoom

    from paceline.data.idx import read_idx

    small = read_idx(Digits.embedded / Digits.layouts[0][0].name).astype(float) * 255 / 16
    large = zoom(small, (1, 3.5, 3.5), order=1, grid_mode=True, mode="nearest")
    every = np.concatenate([arrays.train_images, arrays.test_images])[:, 0]
    assert np.abs(np.sort(every.mean((1, 2))) - np.sort(large.mean((1, 2)))).max() < 0.6


def test_synthetic_has_the_asked_shape_and_can_be_learned():
    made = Synthetic(shape="3x10x9", classes=4, train=200, test=100, seed=3)
    arrays = made.read([])
    check_arrays(made, arrays, "synthetic")
    assert np.bincount(arrays.train_labels).tolist() == [50] * 4
    means = np.stack([arrays.train_images[arrays.train_labels == c].mean(0) for c in range(4)])
    distances = ((arrays.test_images[:, None] - means) ** 2).sum((2, 3, 4))
    assert (distances.argmin(1) == arrays.test_labels).mean() > 0.9
    again = Synthetic(shape=(3, 10, 9), classes=4, train=200, test=100, seed=3).read([])
    assert all(np.array_equal(a, b) for a, b in zip(arrays, again, strict=True))
    other = Synthetic(shape=(3, 10, 9), classes=4, train=200, test=100, seed=4).read([])
    assert not np.array_equal(arrays.train_images, other.train_images)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shape": "28x28"}, "such as 3x32x32"),
        ({"shape": 7}, "must be a list, each a whole number or text"),
        ({"shape": (1, 0, 4)}, "at least 1"),
        ({"classes": 0}, "classes must be"),
        ({"train": 2.5}, "train = 2.5 must be a whole number"),
        ({"clases": 3}, "did you mean 'classes'"),
    ],
)
def test_wrong_options_are_one_line(options, says):
    with pytest.raises(ConfigError, match=says):
        prepare("synthetic", options=options)


def svhn_file(path, images, labels):
    savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": labels[:, None]})
    return path


def test_svhn_is_transposed_and_ten_means_zero(tmp_path):
    images = RNG.integers(0, 256, (30, 3, 32, 32), dtype=np.uint8)
    labels = (np.arange(30) % 10 + 1).astype(np.uint8)
    path = svhn_file(tmp_path / "train_32x32.mat", images, labels)
    arrays = Svhn().read([path, path])
    assert np.array_equal(arrays.train_images, images)
    assert np.array_equal(arrays.test_labels, labels % 10)


@pytest.mark.parametrize("damage", ["cut", "junk", "labels", "names"])
def test_damaged_svhn_is_one_line(tmp_path, damage):
    path = svhn_file(
        tmp_path / "x.mat", np.zeros((5, 3, 32, 32), np.uint8), np.full(5, 11 * (damage == "labels") + 1)
    )
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-5000])
    if damage == "junk":
        path.write_bytes(b"not a mat file at all" * 40)
    if damage == "names":
        savemat(path, {"Z": np.zeros(3)})
    with pytest.raises(DataError, match=r"x\.mat: ") as caught:
        Svhn().read([path, path])
    assert "\n" not in str(caught.value)


def cifar10_batches(folder, count=4):
    records = RNG.integers(0, 256, (6, count, 3073), dtype=np.uint8)
    records[:, :, 0] %= 10
    folder.mkdir(parents=True, exist_ok=True)
    names = [file.name for file in Cifar10.layouts[0]]
    for name, batch in zip(names, records, strict=True):
        batch.tofile(folder / name)
    return records, [folder / name for name in names]


def test_cifar10_from_its_files_and_from_the_archive(tmp_path):
    records, paths = cifar10_batches(tmp_path / "cifar-10-batches-bin")
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
    for found in (Cifar10().read(paths), Cifar10().read([archive])):
        assert np.array_equal(found.train_images.reshape(20, 3072), records[:5].reshape(20, 3073)[:, 1:])
        assert np.array_equal(found.train_labels, records[:5, :, 0].reshape(-1))
        assert np.array_equal(found.test_images[2, 1, 0], records[5, 2, 1 + 1024 : 1 + 1024 + 32])
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(DataError, match=r"truncated or damaged|holds no"):
        Cifar10().read([archive])
    paths[3].write_bytes(b"\0" * 3074)
    with pytest.raises(DataError, match=r"data_batch_4\.bin: 3,074 bytes are no whole number"):
        Cifar10().read(paths)


def cifar100_pickle(count=6, **changes):
    content = {
        "data": RNG.integers(0, 256, (count, 3072), dtype=np.uint8),
        "fine_labels": list(range(count)),
    }
    return pickle.dumps(content | changes, 2)


def test_cifar100_from_its_files_and_from_the_archive(tmp_path):
    pickled = {name: cifar100_pickle() for name in ("train", "test")}
    archive = tmp_path / "x.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        for name, content in pickled.items():
            (tmp_path / name).write_bytes(content)
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    from_files = Cifar100().read([tmp_path / "train", tmp_path / "test"])
    from_archive = Cifar100().read([archive])
    assert all(np.array_equal(a, b) for a, b in zip(from_files, from_archive, strict=True))
    assert from_files.train_labels.tolist() == list(range(6))
    assert from_files.train_images.shape == (6, 3, 32, 32)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": [1, 2]}, "expected an array `data`"),
        ({"data": np.zeros((6, 3072))}, "expected an array `data`"),
        ({"data": np.zeros((6, 100), np.uint8)}, "expected an array `data`"),
        ({"fine_labels": ["1"]}, "expected a list `fine_labels`"),
        ({"fine_labels": None}, "expected a list `fine_labels`"),
    ],
)
def test_cifar100_of_another_layout_is_one_line(tmp_path, changes, says):
    (tmp_path / "train").write_bytes(cifar100_pickle(**changes))
    with pytest.raises(DataError, match=says):
        Cifar100().read([tmp_path / "train", tmp_path / "train"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_images": np.zeros((4, 1, 28, 28), np.float32)}, "train pictures are float32"),
        ({"test_images": np.zeros((3, 28, 28), np.uint8)}, "test pictures are uint8"),
        ({"test_labels": np.zeros(4, int)}, "4 test labels for 3 pictures"),
        ({"train_labels": np.array([0, 1, 2, 10])}, "labels run from 0 to 10, expected 0 to 9"),
        ({"train_labels": np.array([0, 1, 2, -1])}, "labels run from -1 to 2"),
        ({"train_images": np.zeros((5, 1, 28, 28), np.uint8)}, r"expected uint8 \(4, 1, 28, 28\)"),
    ],
)
def test_arrays_are_checked(change, says):
    good = Arrays(
        np.zeros((4, 1, 28, 28), np.uint8),
        np.zeros(4, int),
        np.zeros((3, 1, 28, 28), np.uint8),
        np.zeros(3, int),
    )
    declared = Synthetic(train=4, test=3)
    check_arrays(declared, good, "here")
    with pytest.raises(DataError, match=says):
        check_arrays(declared, good._replace(**change), "here")


def real(real_data, *files):
    if not (real_data / files[0]).exists():
        pytest.skip(f"{files[0]} is not in {real_data}")
    return real_data


def test_real_mnist(real_data):
    mnist = prepare("mnist", real_data)
    assert (mnist.train_size, mnist.test_size, mnist.verified) == (60_000, 10_000, True)
    assert mnist.mean == pytest.approx((0.1307,), abs=5e-5)
    assert mnist.std == pytest.approx((0.3081,), abs=5e-5)
    labels = np.load(mnist.folder / "train_labels.npy")
    assert labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


def test_real_cifar10(real_data):
    cifar = prepare("cifar10", real(real_data, "cifar10/test_batch.bin"))
    assert (cifar.train_size, cifar.test_size, cifar.verified) == (50_000, 10_000, True)
    assert cifar.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=5e-5)


@pytest.mark.slow
def test_rebuilt_svhn_is_accepted_only_when_the_user_says_so(real_data):
    root = real(real_data, "svhn/train_32x32.mat")
    with pytest.raises(DataError, match=r"train_32x32\.mat is not the official file .*--allow-unverified"):
        prepare("svhn", root)
    svhn = prepare("svhn", root, allow_unverified=True)
    assert (svhn.train_size, svhn.test_size, svhn.verified) == (73_257, 26_032, False)
    assert svhn.mean == pytest.approx((0.4377, 0.4438, 0.4728), abs=5e-5)
    with pytest.raises(DataError, match="--allow-unverified"):
        prepare("svhn", root)


def test_partial_cifar100_needs_the_option_and_the_permission(real_data):
    root = real(real_data, "cifar100/cifar-100-python/train.partial")
    with pytest.raises(DataError, match=r"cifar100: no .*fetch cifar100"):
        prepare("cifar100", root, allow_unverified=True)
    with pytest.raises(DataError, match=r"train\.partial .* has no published checksum"):
        prepare("cifar100", root, options={"partial": True})
    cifar = prepare("cifar100", root, allow_unverified=True, options={"partial": True})
    assert (cifar.train_size, cifar.test_size, cifar.classes) == (1005, 644, 100)
    assert "unofficial number of pictures, 1,005 train and 644 test" in cifar.notice
    assert np.bincount(np.load(cifar.folder / "train_labels.npy"))[[8, 48]].tolist() == [500, 500]
