"""Ranks that disagree hear the same line at once, whatever the collective: none hangs, ends, or gets numbers.

Six ways of disagreeing (shape, type, operation, reduce operation, root, order), and what else is not the same.
"""

from __future__ import annotations

import pytest
import torch

from cases import disagree as cases
from paceline.comm.calls import LABEL_LENGTH, Call, difference, label_number, label_text
from paceline.comm.checked import FIRST_CALLS
from paceline.comm.links.thread import in_threads
from paceline.errors import ConfigError, RankFailed
from paceline.registry import COLLECTIVES, option_hints

NAMES = COLLECTIVES.names()
OVER_LINKS = [name for name in NAMES if "link" in option_hints(COLLECTIVES.load(name))]
LINES = {
    "shape": "rank 2 is at sum #4, 1025 float32; rank 0 at sum #4, 1024 float32",
    "type": "rank 2 is at sum #4, 1024 int32; rank 0 at sum #4, 1024 float32",
    "operation": "rank 2 is at broadcast #4, 1024 float32 from rank 0; rank 0 at sum #4, 1024 float32",
    "reduce operation": "rank 2 is at max #4, 1024 float32; rank 0 at sum #4, 1024 float32",
    "root": "rank 2 is at broadcast #4, 1024 float32 from rank 1; rank 0 at broadcast #4, 1024 float32 from rank 0",
    "order": "rank 2 is at sum #4, 7 float32; rank 0 at sum #4, 5 float32",
    "order of buckets": "rank 2 is at avg #4, 1024 float32 (bucket 1); rank 0 at avg #4, 1024 float32 (bucket 0)",
    "large and small": "rank 2 is at sum #4, 2000000 float32; rank 0 at sum #4, 10 float32",
    "a type without a number": "rank 2 is at broadcast #4, 4800000 bytes from rank 0; rank 0 at broadcast #4, 2400000 bytes from rank 0",
    "too few": "rank 2 is at close #4; rank 0 at barrier #4",
}


def check(ranks: list[dict], cases: list[str]) -> None:
    for case in cases:
        for found in ranks:
            said, again, seconds, total = found[case]
            assert said == again == f"RanksDisagree: ranks disagree: {LINES[case]}", case
            assert seconds < 5  # measured: milliseconds; this is a deadline far below that of the ranks
            assert total == 9.0


@pytest.mark.parametrize("name", NAMES)
def test_ranks_that_disagree_hear_the_same_line(zygote, name):
    # shm says by itself who closed: tests/integration/test_shm.py
    chosen = [case for case in LINES if case != "too few" or name != "shm"]
    check(zygote.run("cases.disagree:disagree", 3, name=name, cases=chosen), chosen)


@pytest.mark.parametrize("name", OVER_LINKS)
def test_threads_that_disagree_hear_the_same_line(name):
    chosen = list(LINES)
    check(in_threads(3, lambda world: cases.disagree(world, name, chosen, {"link": "thread"})), chosen)


@pytest.mark.parametrize("name", NAMES)
def test_checking_changes_nothing_else(zygote, name):
    for plain, compared in zygote.run("cases.disagree:in_the_order_of_calls", 2, name=name):
        for a, b in zip(plain, compared, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("variable", "decorated", "exchanges"),
    [("0", False, 0), ("1", True, FIRST_CALLS + 4), ("", True, FIRST_CALLS)],
)
def test_which_calls_are_compared(monkeypatch, variable, decorated, exchanges):
    monkeypatch.setenv("PACELINE_CHECK", variable)
    monkeypatch.delenv("PYTEST_VERSION")
    found = in_threads(2, lambda world: cases.exchanges(world, FIRST_CALLS + 3))
    assert found == [(decorated, exchanges)] * 2


def test_below_pytest_every_call_is_compared(monkeypatch):
    monkeypatch.delenv("PACELINE_CHECK", raising=False)
    assert (
        in_threads(2, lambda world: cases.exchanges(world, FIRST_CALLS + 3)) == [(True, FIRST_CALLS + 4)] * 2
    )


def test_another_value_of_the_variable_is_refused(monkeypatch):
    monkeypatch.setenv("PACELINE_CHECK", "yes")
    with pytest.raises(ConfigError, match="PACELINE_CHECK='yes': 1 compares every call"):
        in_threads(2, lambda world: cases.exchanges(world, 1))


def test_a_failure_says_in_which_call():
    def function(world):
        collective = cases.made(world, "ring", {"link": "thread"})
        collective.all_reduce_(torch.ones(2))
        if world.rank == 1:
            return ""
        with pytest.raises(RankFailed) as caught:
            collective.labelled("bucket 7").all_reduce_(torch.ones(5), "max")
        return str(caught.value)

    said = in_threads(2, function, deadline=0.2)[0]
    assert said == "rank 1 sent nothing to rank 0 within 0.2 s, in max #2, 5 float32 (bucket 7)"


def test_one_rank_alone_is_not_decorated():
    assert in_threads(1, lambda world: cases.exchanges(world, 3)) == [(False, 0)]


@pytest.mark.parametrize("text", ["", "bucket 0", "a", "loss_sum", "z" * LABEL_LENGTH, "9_9 9"])
def test_a_label_survives_being_a_number(text):
    assert label_text(label_number(text)) == text
    call = Call(41, "all_reduce", 1024, 0, "product", 0, label_number(text))
    numbers = call.encode()
    assert Call.decode(numbers) == call and max(numbers) < 2**63


@pytest.mark.parametrize("text", ["Bucket", " a", "a ", "a" * (LABEL_LENGTH + 1), "a-b"])
def test_a_label_that_is_no_number_is_refused(text):
    with pytest.raises(ConfigError, match="small letters"):
        label_number(text)


def test_both_calls_are_shown():
    calls = [
        Call(41, "broadcast", 1024, 0),
        Call(41, "broadcast", 1024, 0),
        Call(41, "all_reduce", 1024, 0, label=label_number("bucket 0")),
    ]
    assert difference(calls) == (
        "ranks disagree: rank 2 is at sum #41, 1024 float32 (bucket 0); "
        "rank 0 at broadcast #41, 1024 float32 from rank 0"
    )
    assert difference(calls[:2]) is None
