"""Prepared once, whole or not at all, by any number of processes; a changed source or cache is noticed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from paceline.data import cache as module
from paceline.data import prepare
from paceline.data.cache import channel_statistics
from paceline.data.lock import exclusive
from paceline.data.sets.mnist import Mnist
from paceline.errors import DataError


def prepared_folders(cache):
    return sorted(path.name for path in (cache / "prepared").iterdir() if not path.name.endswith(".lock"))


def test_holds_what_the_files_hold(tiny, cache):
    prepared = prepare("mnist", tiny.root)
    assert prepared.folder.parent == cache / "prepared"
    arrays = [np.load(prepared.folder / f"{part}.npy") for part in module._PARTS]
    assert [array.dtype for array in arrays] == [np.uint8, np.int64, np.uint8, np.int64]
    for array, expected in zip(arrays, tiny.arrays, strict=True):
        assert np.array_equal(array.reshape(expected.shape), expected)
    assert arrays[0].shape == (50, 1, 28, 28)
    assert (prepared.shape, prepared.classes) == ((1, 28, 28), 10)
    assert (prepared.train_size, prepared.test_size) == (50, 20)
    assert prepared.mean == pytest.approx([tiny.arrays[0].mean() / 255])
    assert prepared.std == pytest.approx([tiny.arrays[0].std() / 255])
    assert prepared.data_bytes == sum(path.stat().st_size for path in prepared.folder.glob("*.npy"))


def test_the_second_call_reads_nothing(tiny, monkeypatch):
    first = prepare("mnist", tiny.root)
    monkeypatch.setattr(module, "verify", lambda sources: pytest.fail("checksums computed again"))
    monkeypatch.setattr(Mnist, "read", lambda self, paths: pytest.fail("read again"))
    assert prepare("mnist", tiny.root) == first


def test_a_changed_source_is_prepared_anew(tiny, cache):
    first = prepare("mnist", tiny.root)
    os.utime(tiny.files[0], ns=(0, 123_456_789))
    second = prepare("mnist", tiny.root)
    assert second.folder != first.folder
    assert len(prepared_folders(cache)) == 2


def test_options_have_caches_of_their_own():
    few = prepare("synthetic", options={"train": 20, "test": 10})
    more = prepare("synthetic", options={"train": 30, "test": 10})
    assert (few.train_size, more.train_size) == (20, 30)
    assert few.folder != more.folder


@pytest.mark.parametrize("damage", ["short", "gone", "no meta", "meta cut", "meta other"])
def test_a_damaged_cache_is_made_anew(tiny, cache, damage):
    first = prepare("mnist", tiny.root)
    images, meta = first.folder / "train_images.npy", first.folder / "meta.json"
    content = images.read_bytes()
    if damage == "short":
        os.truncate(images, 100)
    elif damage == "gone":
        images.unlink()
    elif damage == "no meta":
        meta.unlink()
    else:
        meta.write_text(
            '{"prepared": ' if damage == "meta cut" else json.dumps({"files": {}, "prepared": {"x": 1}})
        )
    assert prepare("mnist", tiny.root) == first
    assert images.read_bytes() == content
    assert prepared_folders(cache) == [first.folder.name]


def alter(tiny):
    """Another picture, in the right format and shape."""
    import gzip

    from tiny_mnist import idx

    tiny.files[0].write_bytes(gzip.compress(idx(255 - tiny.arrays[0])))


def test_an_altered_file_needs_permission_every_time(tiny, cache):
    alter(tiny)
    with pytest.raises(DataError, match="--allow-unverified") as caught:
        prepare("mnist", tiny.root)
    line = str(caught.value)
    for part in (
        str(tiny.files[0].parent),
        tiny.files[0].name,
        Mnist.layouts[0][0].md5,
        "paceline data fetch mnist",
    ):
        assert part in line
    assert "\n" not in line
    assert not prepared_folders(cache)
    prepared = prepare("mnist", tiny.root, allow_unverified=True)
    assert not prepared.verified
    assert prepared.notice.startswith("train-images-idx3-ubyte.gz is not the official file (md5 ")
    with pytest.raises(DataError, match="--allow-unverified"):
        prepare("mnist", tiny.root)


@pytest.mark.parametrize("allow", [False, True])
def test_a_truncated_file_is_never_accepted(tiny, cache, allow):
    content = tiny.files[2].read_bytes()
    tiny.files[2].write_bytes(content[:-100])
    says = (
        "truncated or damaged"
        if allow
        else rf"\({len(content) - 100:,} bytes, md5 \w+; published {len(content):,} bytes"
    )
    with pytest.raises(DataError, match=says) as caught:
        prepare("mnist", tiny.root, allow_unverified=allow)
    assert tiny.files[2].name in str(caught.value)
    assert not prepared_folders(cache)


def test_a_file_of_the_wrong_count_is_never_accepted(tiny):
    import gzip

    from tiny_mnist import idx

    tiny.files[1].write_bytes(gzip.compress(idx(tiny.arrays[1][:-1])))
    with pytest.raises(DataError, match="49 train labels for 50 pictures"):
        prepare("mnist", tiny.root, allow_unverified=True)


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.ENOSPC, "no space left to prepare mnist in"), (errno.EACCES, "cannot prepare mnist in")],
)
def test_a_full_disk_is_one_line_and_leaves_nothing(tiny, cache, monkeypatch, number, says):
    def fail(file):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(module, "_sync", fail)
        with pytest.raises(DataError, match=says) as caught:
            prepare("mnist", tiny.root)
    assert "PACELINE_CACHE" in str(caught.value)
    assert not prepared_folders(cache)
    assert prepare("mnist", tiny.root).verified


PREPARE = """
    import sys
    from paceline.data import prepare
    print(prepare("synthetic", options={"train": 3000, "test": 100}).folder)
    assert "torch" not in sys.modules
"""


def start(code, **settings):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def test_many_processes_at_once_make_one(cache):
    processes = [start(PREPARE) for _ in range(4)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outputs
    assert len({out for out, _ in outputs}) == 1
    assert len(prepared_folders(cache)) == 1


def test_a_killed_process_blocks_nobody(cache):
    stops = """
        import os, signal
        from paceline.data import cache, prepare
        def stop(*_):
            print("half", flush=True)
            signal.pause()
        cache.channel_statistics = stop
        prepare("synthetic", options={"train": 50, "test": 20})
    """
    process = start(stops)
    assert process.stdout.readline() == "half\n"
    assert prepared_folders(cache)[0].startswith(".synthetic-")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    prepared = prepare("synthetic", options={"train": 50, "test": 20})
    assert prepared_folders(cache) == [prepared.folder.name]


def test_waiting_says_so_and_has_a_deadline(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("paceline.data.lock._SILENT_SECONDS", 0.0)
    path = tmp_path / "x.lock"
    with path.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with (
            pytest.raises(DataError, match="waited 0 s for another process to prepare x"),
            exclusive(path, "prepare x", deadline_seconds=0.15),
        ):
            pytest.fail("two at once")
    assert capfd.readouterr().err == "paceline: waiting for another process to prepare x\n"
    with exclusive(path, "prepare x", deadline_seconds=0.0):
        assert path.exists()


def test_a_read_only_cache_that_is_there_is_enough(tiny, cache, monkeypatch):
    first = prepare("mnist", tiny.root)
    monkeypatch.setattr(module, "exclusive", lambda *_: pytest.fail("wants to write"))
    assert prepare("mnist", tiny.root) == first


def test_a_set_of_the_users_own(tmp_path, monkeypatch, cache):
    monkeypatch.syspath_prepend(tmp_path)
    code = """
        import numpy as np
        from paceline.data.definition import Arrays, DataSet
        class Stripes(DataSet):
            shape, classes, train_size, test_size = (1, 4, 4), 2, 6, 2
            def read(self, paths):
                images = np.zeros((8, 1, 4, 4), np.uint8)
                return Arrays(images[:6], np.zeros(6, int), images[6:], np.ones(2, int))
    """
    source = tmp_path / "own_set.py"
    source.write_text(textwrap.dedent(code))
    prepared = prepare("own_set:Stripes")
    assert prepared.folder.name.startswith("own_set-Stripes-")
    assert prepared.std == (1.0,), "a black channel can be normalised"
    os.utime(source, ns=(0, time.time_ns()))
    assert prepare("own_set:Stripes").folder != prepared.folder, "changed code is prepared anew"


def test_statistics_are_exact_in_any_number_of_chunks(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (37, 3, 5, 4), dtype=np.uint8)
    monkeypatch.setattr(module, "_CHUNK", 50)
    mean, std = channel_statistics(images)
    assert mean == pytest.approx(images.mean((0, 2, 3)) / 255, rel=1e-12)
    assert std == pytest.approx(images.std((0, 2, 3)) / 255, rel=1e-12)
