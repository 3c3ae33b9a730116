"""The torch.distributed backend between real ranks: each call beside gloo's, futures, errors, choice."""

from __future__ import annotations

import pytest

import paceline.backend
from paceline.comm import shm
from paceline.registry import COLLECTIVES

KINDS = ["float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8"]
ON_ONE_NODE = "Shm" if shm.unavailable() is None else "NoneType"


@pytest.mark.parametrize(
    ("ranks", "members", "kinds", "lengths"),
    [
        (1, None, ["float32"], [5]),
        (2, None, KINDS, [1, 257]),
        (3, None, ["float32", "int64"], [257, 40_001]),
        (3, [0, 2], ["float32"], [16]),
    ],
)
def test_every_call_gives_what_gloo_gives(zygote, ranks, members, kinds, lengths):
    arguments = {"backend": "paceline", "kinds": kinds, "lengths": lengths, "members": members}
    assert zygote.run("cases.backend:every_call", ranks, **arguments) == [[]] * ranks


@pytest.mark.parametrize("collective", ["ring", "auto"])
def test_every_call_over_another_collective(zygote, collective):
    arguments = {"backend": f"paceline_{collective}", "kinds": ["float32", "int64"], "lengths": [16]}
    assert zygote.run("cases.backend:every_call", 2, **arguments) == [[], []]


def test_what_gloo_refuses_and_what_only_gloo_does(zygote):
    for found in zygote.run("cases.backend:beyond_gloo", 3):
        assert found["average"] == [1.0] * 3
        assert found["bits"] == 7
        assert found["sparse"] == [1.0] * 3
        assert "complex" in found["complex"]
        assert found["unknown"].startswith("Invalid scalar type: cannot combine torch.uint16 over ranks; convert")
        assert found["still"] == 3.0


def test_callbacks_may_start_and_wait_for_other_collectives(zygote):
    for found in zygote.run("cases.backend:futures", 2):
        assert found == {"value": [10.0] * 4, "seen": [2.0], "done": True}


def test_works_that_nobody_holds_are_done(zygote):
    assert zygote.run("cases.backend:dropped", 2) == [True, True]


def test_a_wait_with_a_time_of_its_own(zygote):
    said, _ = zygote.run("cases.backend:timed_wait", 2)
    assert said == "a collective did not end within the 0.05 s of this wait"


def test_a_message_passes_a_collective_that_was_started(zygote):
    assert zygote.run("cases.backend:interleaved", 2) == [2.0, 9.0]


@pytest.mark.parametrize(
    ("backend", "options", "made"),
    [
        ("paceline", None, ON_ONE_NODE),
        ("cpu:paceline", None, ON_ONE_NODE),
        ("paceline_butterfly", None, "Butterfly"),
        ("cpu:paceline_native", None, "Native"),
        ("paceline", {"collective": "ring", "link": "torch_p2p"}, "Ring"),
    ],
)
def test_a_collective_by_name(zygote, backend, options, made):
    for kept, _ in zygote.run("cases.backend:chosen", 2, backend=backend, options=options):
        assert kept == made


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"collective": "rign"}, "no collective 'rign'; did you mean 'ring'?"),
        ({"collective": "ring", "chunk": 3}, "collective 'ring' has no option 'chunk'; there is link"),
    ],
)
def test_a_wrong_choice_is_one_line_on_every_rank(zygote, options, seen):
    for kind, said in zygote.run("cases.backend:chosen", 2, backend="paceline", options=options):
        assert kind == "DistBackendError" and said.startswith(seen)


def test_names_are_the_registry():
    assert paceline.backend.names() == ["paceline", *(f"paceline_{name}" for name in COLLECTIVES.names())]
