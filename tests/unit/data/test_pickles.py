"""The restricted reader reads arrays and runs nothing."""

from __future__ import annotations

import io
import os
import pickle
from functools import partial

import numpy as np
import pytest

from paceline.data.pickles import read_pickle
from paceline.errors import DataError

CONTENT = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3], "name": "batch"}


class Gadget:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def read(content):
    return read_pickle(io.BytesIO(content), "somewhere/train")


@pytest.mark.parametrize("protocol", range(5))  # the official files are of protocol 2
def test_reads_arrays_of_every_protocol(protocol):
    found = read(pickle.dumps(CONTENT, protocol))
    assert found.keys() == CONTENT.keys()
    assert np.array_equal(found["data"], CONTENT["data"])
    assert found["labels"] == [1, 2, 3]


def test_reads_what_python_2_and_an_older_numpy_wrote():
    old = pickle.dumps(CONTENT, 2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert b"numpy.core.multiarray" in old
    assert np.array_equal(read(old)["data"], CONTENT["data"])


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("gadget", "names"),
    [
        (Gadget(os.system, "touch ran"), "posix.system"),
        (Gadget(eval, "open('ran', 'w')"), "eval"),
        (Gadget(exec, "open('ran', 'w')"), "exec"),
        (Gadget(np.load, "x"), "numpy"),
        (Gadget(getattr, np.ndarray, "tofile"), "getattr"),
        (partial(os.mkdir, "ran"), "functools.partial"),
    ],
)
def test_refuses_everything_else_and_names_it(tmp_path, monkeypatch, gadget, names, protocol):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"data": gadget}, protocol)
    with pytest.raises(DataError, match=f"somewhere/train: refused, its pickle asks for .*{names}"):
        read(content)
    assert not list(tmp_path.iterdir()), "the gadget ran"


def test_encode_takes_latin1_only():
    import _codecs

    assert read(pickle.dumps({"x": Gadget(_codecs.encode, "é", "latin1")}, 2)) == {"x": b"\xe9"}
    with pytest.raises(DataError, match="encoding 'rot13'"):
        read(pickle.dumps({"x": Gadget(_codecs.encode, "x", "rot13")}, 2))


@pytest.mark.parametrize(
    "content", [b"", b"junk", pickle.dumps(CONTENT)[:-20], pickle.dumps(CONTENT, 0)[:90]]
)
def test_damage_is_one_line(content):
    with pytest.raises(DataError, match="truncated or damaged") as caught:
        read(content)
    assert "\n" not in str(caught.value)


def test_something_else_than_a_dictionary():
    with pytest.raises(DataError, match="expected a dictionary, found list"):
        read(pickle.dumps([1]))
