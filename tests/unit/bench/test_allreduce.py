"""`paceline bench allreduce`: what is asked, the arithmetic of its rows, the rows themselves, the page."""

from __future__ import annotations

import json

import pytest

from paceline.bench import _allreduce_rows as rows
from paceline.bench import allreduce
from paceline.bench._allreduce_cases import every_case, parse, parse_all, split
from paceline.comm.shm import unavailable
from paceline.errors import ConfigError

PROMISED = {
    "collective", "ranks", "elements", "median_us", "low_us", "high_us", "cpu_us", "peak_bytes", "max_error",
}  # fmt: skip


def test_words_of_collectives():
    assert split("ring[a=1,b=2], shm") == ["ring[a=1,b=2]", "shm"]
    assert parse("torch").reference and parse("torch").label == "torch"
    assert parse("shm:zero_copy").zero_copy and not parse("shm").zero_copy
    assert parse("ring[link=thread]").options == {"link": "thread"}
    assert (
        every_case()[0] == "native"
        and "shm:zero_copy" in every_case()
        and "ring:zero_copy" not in every_case()
    )


@pytest.mark.parametrize(
    ("labels", "said"),
    [(["rin"], "ring"), (["shm", "shm"], "twice"), (["shm[speed=9]"], "speed"), (["[]"], "NAME")],
)
def test_words_that_are_refused(labels, said):
    with pytest.raises(ConfigError, match=said):
        parse_all(labels)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"ranks": [33]}, "1 to 32"),
        ({"sizes": [-1]}, "0 to"),
        ({"seconds": 0}, "positive"),
        ({"sizes": []}, "nothing"),
    ],
)
def test_numbers_that_are_refused(wanted, said):
    with pytest.raises(ConfigError, match=said):
        allreduce.Wanted(**wanted)


def test_a_block_lasts_from_the_last_start_to_the_last_end():
    assert rows.block_seconds([(0.0, 5.0, 0), (1.0, 4.0, 0)], calls=4) == 1.0


def left_by(times: dict[str, list[tuple[float, float, float]]], sent: int | None) -> dict:
    """What one of two ranks left: blocks of two calls on 1,000 elements."""
    return {
        "elements": 1000, "calls": dict.fromkeys(times, 2), "samples": times,
        "error": dict.fromkeys(times, 1e-7), "same_bits": dict.fromkeys(times, True),
        "messages": dict.fromkeys(times, sent), "bytes_sent": dict.fromkeys(times, sent),
    }  # fmt: skip


def test_rows_from_what_the_ranks_left():
    first = {"native": [(0, 8e-3, 3e-3)] * 7, "shm": [(0, 4e-3, 1e-3)] * 7, rows.COPY: [(0, 1e-3, 0)] * 7}
    second = {"native": [(0, 6e-3, 1e-3)] * 7, "shm": [(0, 2e-3, 1e-3)] * 7, rows.COPY: [(0, 2e-3, 0)] * 7}
    found = [{"cells": [left_by(times, sent)]} for times, sent in ((first, 3), (second, 5))]
    native, shm = rows.with_peaks(rows.rows_of(found, ["native"]), {("shm", 1000): 77})
    assert (native["median_us"], shm["median_us"]) == pytest.approx((4000, 2000))
    assert (native["cpu_us"], shm["cpu_us"]) == pytest.approx((2000, 1000))
    assert (native["times_native"], shm["times_native"]) == pytest.approx((1, 2))
    assert shm["algorithm_gbs"] == shm["bus_gbs"] == pytest.approx(4000 / 2e-3 / 1e9)  # two ranks: the same
    assert shm["roofline_gbs"] == pytest.approx((8000 / 1e-3 + 8000 / 2e-3) / 1e9)
    assert shm["of_roofline"] == pytest.approx(2 * 4000 / 2e-3 / 12e6)
    assert (shm["messages"], shm["peak_bytes"], native["peak_bytes"]) == (5, 77, None)


def test_what_one_rank_cannot_count_is_unknown():
    cells = [left_by({"native": [(0, 1, 1)]}, 3), left_by({"native": [(0, 1, 1)]}, None)]
    assert rows.rows_of([{"cells": [cell]} for cell in cells], [])[0]["messages"] is None


@pytest.mark.slow
@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("ranks", [2, 3])  # with and without a core each, where there are two
def test_the_command_writes_a_list_of_rows(zygote, tmp_path, ranks):
    words = [
        "bench",
        "allreduce",
        "--ranks",
        ranks,
        "--sizes",
        "0,9,90",
        "--collectives",
        "torch,ring,shm,shm:zero_copy",
    ]
    done = zygote.paceline(*words, "--seconds", "0.1", "--json", "rows.json", "--out", "page", cwd=tmp_path)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "rows.json").read_text())
    assert isinstance(found, list) and len(found) == 12
    for row in found:
        assert row.keys() >= PROMISED
        assert row["low_us"] <= row["median_us"] <= row["high_us"]
        assert row["max_error"] < 1e-6 and row["same_bits"] and row["peak_bytes"] >= 0
    sent = {row["collective"]: (row["messages"], row["bytes_sent"]) for row in found if row["elements"] == 9}
    if ranks == 3:  # 2(p-1) messages of a third
        assert sent["ring"] == (4, 4 * 3 * 4)
    assert sent["shm"] == sent["shm:zero_copy"] == (0, 0)
    assert sent["torch"][1] >= 2 * (ranks - 1) * 36 // ranks
    assert "Time over size" in (tmp_path / "page/report.html").read_text()
    again = zygote.paceline("bench", "allreduce", "--from", "rows.json", "--out", "again", cwd=tmp_path)
    assert again.out.splitlines()[:-1] == done.out.splitlines()[:-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--ranks", "64"], "1 to 32"), (["--sizes", "many"], "whole numbers"), (["--from", "no"], "no")],
)
def test_a_mistake_is_one_line(zygote, tmp_path, words, said):
    done = zygote.paceline("bench", "allreduce", *words, cwd=tmp_path)
    assert done.code == 2 and said in done.err
    assert len(done.err.strip().splitlines()) <= 2  # how far it was, and what was wrong
