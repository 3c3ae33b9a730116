import contextlib
import json
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ConfigError, DataError, PacelineError, RankFailed
from paceline.launch.failure import CONSEQUENCE, LATE, OWN, TESTIMONY, Failure, cause, late, outcome, record


def gloo():
    return RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711")


class DistBackendError(RuntimeError):
    """As torch's: known by the name of its base."""


DistError = type("DistError", (RuntimeError,), {})


def ended(error, rank=1):
    return outcome(rank, code=1, signal_number=0, said=record(error).decode(), at=1e12)


def raised(first, later=None):
    """The exception that comes out of raising the first and, while it is handled, the later one."""
    try:
        try:
            raise first
        finally:
            if later is not None:
                raise later
    except BaseException as error:
        return error


def wrapped(error, origin):
    with contextlib.suppress(type(error)):
        raise error from origin
    return error


def test_an_exception_is_told_in_one_line_with_its_traceback():
    failure = ended(raised(ValueError("first line\nsecond")))
    assert failure.reason == "raised ValueError: first line"
    assert "Traceback" in failure.details
    assert "second" in failure.details
    assert failure.weight == OWN
    assert failure.at < 1e12  # when it was raised, not when it was noticed
    error = failure.error()
    assert isinstance(error, RankFailed)
    assert str(error) == "rank 1 raised ValueError: first line"


def test_an_exception_without_a_message():
    assert ended(KeyError()).reason == "raised KeyError"


@pytest.mark.parametrize("kind", [ConfigError, DataError])
def test_a_mistake_of_the_user_stays_one(kind):
    error = ended(kind("no such file")).error()
    assert type(error) is kind
    assert str(error) == "no such file"


def test_an_unknown_kind_of_user_mistake_becomes_its_known_base():
    class OddError(ConfigError):
        pass

    assert type(ended(OddError("x")).error()) is ConfigError


@pytest.mark.parametrize(
    ("error", "weight"),
    [
        (ValueError("x"), OWN),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), OWN),
        (PacelineError("x"), OWN),
        (MemoryError(), OWN),
        (RankFailed(2, "fell silent in all_reduce"), TESTIMONY),
        (gloo(), CONSEQUENCE),
        (RuntimeError("Timed out waiting 1000ms for recv operation to complete"), CONSEQUENCE),
        (BrokenPipeError(32, "Broken pipe"), CONSEQUENCE),
        (ConnectionResetError(), CONSEQUENCE),
        (TimeoutError(), CONSEQUENCE),
        (DistError("store"), CONSEQUENCE),
        (DistBackendError("only its name"), OWN),
        (raised(ValueError("mine"), gloo()), OWN),  # the teardown failed too
        (wrapped(PacelineError("all_reduce failed"), gloo()), CONSEQUENCE),
        (wrapped(RankFailed(2, "fell silent"), gloo()), TESTIMONY),
        (wrapped(DataError("cannot fetch"), ConnectionResetError()), OWN),
    ],
)
def test_weights(error, weight):
    assert ended(error).weight == weight


def test_a_failing_teardown_hides_nothing():
    assert ended(raised(ValueError("mine"), gloo())).reason == "raised ValueError: mine"
    assert ended(raised(ValueError("mine"), KeyboardInterrupt())).reason == "raised ValueError: mine"
    assert (
        ended(wrapped(PacelineError("all_reduce failed"), gloo())).reason
        == "raised PacelineError: all_reduce failed"
    )


def test_a_testimony_names_the_other_rank():
    error = ended(RankFailed(2, "fell silent in all_reduce"), rank=0).error()
    assert (error.rank, str(error)) == (2, "rank 2 fell silent in all_reduce")


def test_an_interrupted_rank_was_stopped():
    assert ended(KeyboardInterrupt()).stopped
    assert ended(raised(KeyboardInterrupt(), gloo())).stopped
    assert not ended(raised(ValueError(), KeyboardInterrupt())).stopped


@pytest.mark.parametrize(
    ("number", "reason", "stopped"),
    [
        (signal.SIGKILL, "was killed by SIGKILL (if nobody sent it, the kernel was out of memory", True),
        (signal.SIGTERM, "was killed by SIGTERM", True),
        (signal.SIGBUS, "was killed by SIGBUS (often a full /dev/shm", False),
        (signal.SIGSEGV, "was killed by SIGSEGV", False),
        (60, "was killed by signal 60", False),
    ],
)
def test_signals_have_names(number, reason, stopped):
    failure = outcome(0, code=0, signal_number=number, said="", at=1.0)
    assert failure.reason.startswith(reason)
    assert failure.stopped == stopped


def test_a_native_crash_keeps_its_stack_and_loses_the_list_of_libraries():
    said = "Fatal Python error: Aborted\n\n  File x.py\n\nExtension modules: a, b (total: 2)\n"
    failure = outcome(0, code=0, signal_number=6, said=said, at=1.0)
    assert failure.details.startswith("Fatal Python error: Aborted")
    assert "Extension" not in failure.details
    after = outcome(0, code=0, signal_number=6, said=record(ValueError("x")).decode() + said, at=1.0)
    assert after.reason == "raised ValueError: x"  # a crash while the rank was leaving
    assert "Aborted" in after.details


def test_leaving_without_a_word():
    assert outcome(0, code=3, signal_number=0, said="", at=1.0).reason.startswith("left with exit code 3")


def test_a_record_is_one_line_of_json():
    assert record(ValueError("a\nb")).count(b"\n") == 1
    assert json.loads(record(ValueError("ü")))["message"] == "ü"


failures = st.builds(
    Failure,
    rank=st.integers(0, 7),
    reason=st.just("x"),
    details=st.just(""),
    weight=st.sampled_from([OWN, TESTIMONY, LATE, CONSEQUENCE]),
    at=st.floats(0, 100),
)


@given(st.lists(failures, min_size=1), st.randoms())
def test_the_cause_does_not_depend_on_the_order_in_which_failures_are_noticed(several, random):
    first = cause(several)
    random.shuffle(several)
    assert cause(several) == first
    assert all(
        first.weight < other.weight or first.at <= other.at
        for other in several
        if other.weight <= first.weight
    )
    assert first.weight == min(failure.weight for failure in several)


@given(failures)
def test_late_is_never_stronger(failure):
    assert late(failure).weight >= max(LATE, failure.weight)
