"""`auto`: measures once, keeps the table, and every rank chooses what rank 0's table says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.comm.shm import unavailable


def tables(cache: Path) -> list[Path]:
    return sorted(cache.glob("collectives/auto-*.json"))


def auto(zygote, cache: Path, *names: str, extension: bool = True) -> list[dict]:
    return zygote.run(
        "cases.collectives:auto_twice", 2, cache=str(cache), others=list(names), extension=extension
    )


def test_measured_once_and_alike_on_every_rank(zygote, tmp_path):
    ranks = auto(zygote, tmp_path, "native", "slow")
    assert [rank["measured"] for rank in ranks] == [1, 1]
    assert ranks[0]["choices"] == ranks[1]["choices"]
    first, second = ranks[0]["choices"]
    assert first == second
    assert {name for row in first.values() for name in row.values()} == {"native"}
    assert all(torch.equal(rank["sum"], torch.full((5,), 3.0)) for rank in ranks)
    assert len(tables(tmp_path)) == 1
    assert [rank["measured"] for rank in auto(zygote, tmp_path, "native", "slow")] == [0, 0]


def test_one_rank_alone_measures_nothing(zygote, tmp_path):
    words = {"cache": str(tmp_path), "others": ["slow", "native"]}
    (rank,) = zygote.run("cases.collectives:auto_twice", 1, **words)
    assert rank["measured"] == 0 and torch.equal(rank["sum"], torch.ones(5))
    assert not tables(tmp_path)


def test_a_damaged_table_is_measured_again(zygote, tmp_path):
    auto(zygote, tmp_path, "native", "slow")
    (file,) = tables(tmp_path)
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    assert [rank["measured"] for rank in auto(zygote, tmp_path, "native", "slow")] == [1, 1]
    assert file.read_text().endswith("}\n")


def test_what_one_rank_cannot_construct_nobody_chooses(zygote, tmp_path):
    ranks = auto(zygote, tmp_path, "broken", "native", "slow")
    for rank in ranks:
        assert {name for row in rank["choices"][0].values() for name in row.values()} == {"native"}
    ranks = auto(zygote, tmp_path / "alone", "broken", "native")
    assert [rank["measured"] for rank in ranks] == [0, 0]  # nothing to choose from
    assert ranks[0]["choices"] == ranks[1]["choices"]


def test_a_collective_that_refuses_a_type_is_not_chosen_for_it(zygote, tmp_path):
    for rank in auto(zygote, tmp_path, "refuses", "slow"):
        assert set(rank["choices"][0]["float"].values()) == {"refuses"}
        assert set(rank["choices"][0].get("half", {4096: "slow"}).values()) == {"slow"}


def test_a_cache_that_cannot_be_written_stops_nobody(zygote, tmp_path):
    (tmp_path / "collectives").write_text("a file where the folder should be")
    ranks = auto(zygote, tmp_path, "native", "slow")
    assert [rank["measured"] for rank in ranks] == [2, 2]


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_without_the_extension_it_falls_back_and_with_it_measures_again(zygote, tmp_path):
    chosen = {}
    for extension in (False, True):
        ranks = auto(zygote, tmp_path, "shm", "slow", extension=extension)
        assert all(torch.equal(rank["sum"], torch.full((5,), 3.0)) for rank in ranks)
        chosen[extension] = {name for row in ranks[0]["choices"][0].values() for name in row.values()}
    assert chosen == {False: {"slow"}, True: {"shm"}}  # slow takes 20 ms longer
    assert len(tables(tmp_path)) == 1  # with nothing to choose from there is no table
