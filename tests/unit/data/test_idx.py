"""The IDX reader takes what is right and names what is wrong."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.idx import read_idx
from paceline.errors import DataError
from tiny_mnist import idx

ARRAY = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)


@pytest.mark.parametrize("shape", [(24,), (4, 6), (4, 2, 3), (1, 4, 2, 3), (0, 5)])
@pytest.mark.parametrize("packed", [False, True])
def test_reads_what_was_written(tmp_path, shape, packed):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    path = tmp_path / ("x.gz" if packed else "x")
    path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    assert np.array_equal(read_idx(path), array)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not an IDX file"),
        (b"\0\0\x08", "not an IDX file"),
        (b"\x1f\x8b\x08\x03" + bytes(20), "not an IDX file"),
        (b"\0\0\x0d\x01" + bytes(8), "not an IDX file"),
        (b"\0\0\x08\x09" + bytes(60), "not an IDX file"),
        (idx(ARRAY)[:10], "truncated in its header"),
        (idx(ARRAY)[:-1], "24 values .* holds only 23"),
        (idx(ARRAY) + b"\0", "holds more"),
        (b"\0\0\x08\x04" + b"\xff" * 16, "holds only 0"),
    ],
)
def test_damage_is_one_line_that_names_the_file(tmp_path, content, says):
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.integers(0, 10_000))
def test_a_cut_or_changed_gzip_never_passes_silently(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    content = bytearray(gzip.compress(idx(ARRAY), mtime=0))
    if seed % 2:
        del content[rng.integers(0, len(content)) :]
    else:
        content[rng.integers(10, len(content))] ^= 1 << rng.integers(8)
    path = tmp_path_factory.mktemp("gzip") / "x.gz"
    path.write_bytes(bytes(content))
    try:
        assert np.array_equal(read_idx(path), ARRAY)
    except DataError:
        return
