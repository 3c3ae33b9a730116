"""`paceline bench syncbn`: the arithmetic of its rows, what it refuses, and one small grid measured."""

from __future__ import annotations

import json

import pytest

from paceline.bench._syncbn_page import sections
from paceline.bench._syncbn_rows import CASES, OURS, PLAIN_GLOO, SHARE, TORCH, WHOLE, less_added, rows_of
from paceline.bench.syncbn import Wanted
from paceline.errors import ConfigError
from paceline.metrics.measure import Interval


def of_rank(rank: int) -> dict:
    """Seven rounds of blocks of two passes: rank 1 begins 1 µs later and ends 2 µs later."""
    micro = {WHOLE: 100, OURS: 120, PLAIN_GLOO: 700, SHARE: 60}
    samples = {
        label: [
            (1 + rank * 1e-6, 1 + (2 * seconds + 3 * rank) * 1e-6, seconds * 1e-6, 2 * seconds * 1e-6)
            for _ in range(7)
        ]
        for label, seconds in micro.items()
        if label != WHOLE or rank == 0
    }
    cell = {
        "features": 8, "batch": 4, "passes": dict.fromkeys(micro, 2), "samples": samples, "kept": {OURS: 10 + rank},
        "error": {OURS: 1e-7 * (rank + 1)}, "messages": {OURS: [1, 1]},
    }  # fmt: skip
    return {"cells": [cell]}


def test_rows():
    rows = {row["case"]: row for row in rows_of([of_rank(0), of_rank(1)], {(OURS, 8, 4): 4096})}
    ours = rows[OURS]
    assert list(rows) == [label for label in CASES if label in rows]
    assert ours["median_us"] == pytest.approx(121)  # (2·120 + 3 - 1) / 2
    assert rows[WHOLE]["median_us"] == pytest.approx(100)  # rank 0 alone
    assert ours["times_batchnorm"] == pytest.approx(1.21)
    assert ours["added_us"] == pytest.approx(60)
    assert ours["less_added"] == pytest.approx(640 / 60)
    assert ours["forward_us"] == pytest.approx(60) and ours["backward_us"] == pytest.approx(61)
    assert ours["cpu_us"] == pytest.approx(240)
    assert (ours["kept_bytes"], ours["peak_bytes"], ours["max_error"]) == (11, 4096, 2e-7)
    assert "added_us" not in rows[SHARE]


def test_less_added_is_unknown_where_nothing_is_added():
    gloo, nothing = (Interval(m, m - 2, m + 2, 7, 0.95) for m in (600.0, 1.0))
    found = less_added(gloo, nothing)
    assert found == {"less_added": 600, "less_added_low": pytest.approx(598 / 3), "less_added_high": None}
    assert less_added(gloo, Interval(-5, -9, -1, 7, 0.95))["less_added"] is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ranks": [33]}, "ranks: 33 must be a whole number from 1 to 32"),
        ({"features": []}, "give --features such as"),
        ({"batch": [1]}, "one sample has no variance"),
        ({"seconds": 0}, "must be a positive number"),
    ],
)
def test_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        Wanted(**wrong)


@pytest.mark.slow
def test_a_small_grid(zygote, tmp_path):
    done = zygote.paceline(
        "bench", "syncbn", "--ranks", 2, "--features", "8,16", "--batch", "5", "--seconds", 0.05, "--no-memory", "--json",
        "rows.json", "--out", "page", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {(row["case"], row["ranks"], row["features"]) for row in rows} == {
        (label, 2, features) for label in CASES if label != TORCH for features in (8, 16)
    }
    for row in rows:
        assert row["max_error"] is None or row["max_error"] < 1e-5
        assert row["messages"] == ([1, 1] if "ours" in row["case"] else None)
        assert row["median_us"] > 0
    assert (tmp_path / "page" / "report.html").exists()
    again = zygote.paceline("bench", "syncbn", "--from", "rows.json", "--out", "again", cwd=tmp_path)
    assert again.code == 0 and "same mathematics, gloo" in again.out
    assert [len(section.drawings) for section in sections(rows)] == [0, 1]
