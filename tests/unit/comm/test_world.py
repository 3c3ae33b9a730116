"""What ranks tell each other through the store."""

from __future__ import annotations


def test_ranks_may_agree_on_one_thing_several_times(zygote):
    assert zygote.run("cases.collectives:agreed", 3) == [["0: 0", "0: 1", "0: 2"]] * 3
