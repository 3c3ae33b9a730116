"""How ranks end: each way of failing, each way of stopping."""

import os
import signal
import textwrap
import time

import pytest

# Ranks make a file each with their process number, then wait: in Python, where an interrupt reaches them.
WAITING = """
def here(place):
    path = Path(f"rank{place.rank}")
    Path(f"{path}.new").write_text(str(os.getpid()))
    Path(f"{path}.new").rename(path)

def all_here(place):
    here(place)
    while len([p for p in Path(".").glob("rank?")]) < place.size:
        time.sleep(0.005)
"""


def case(body, ranks=3, **options):
    lines = "".join(f"    {line}\n" for line in textwrap.dedent(body).strip("\n").splitlines())
    text = "".join(f", {name}={value}" for name, value in options.items())
    return f"{WAITING}\ndef function(place):\n    all_here(place)\n{lines}\nreport(function, {ranks}{text})\n"


def failing(what):
    """Rank 1 does this while the others go on."""
    return case(f"if place.rank == 1:\n    {what}\ntime.sleep(60)")


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("raise ValueError('on purpose')", "rank 1 raised ValueError: on purpose"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 was killed by SIGKILL (if nobody sent it"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "rank 1 was killed by SIGTERM"),
        ("os.kill(os.getpid(), signal.SIGINT)", "rank 1 was interrupted by SIGINT"),
        ("os._exit(3)", "rank 1 left with exit code 3 before its function returned"),
        ("sys.exit(0)", "rank 1 left with exit code 0 before its function returned"),
        ("sys.exit('no more')", "rank 1 raised SystemExit: no more"),
    ],
)
def test_a_rank_that_fails_is_named_and_ends_the_others(script, gone, what, text):
    _, said = script.run(failing(what))
    assert said["raised"] == "RankFailed"
    assert said["text"].startswith(text)
    assert said["rank"] == 1
    assert said["seconds"] < 15
    assert gone(script.pids_of("rank0", "rank1", "rank2"), 0)


KILL_RANK_1 = "if place.rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(0.5)\n"


def test_a_rank_that_may_be_lost_ends_nobody_else(script):
    _, said = script.run(case(KILL_RANK_1, may_lose=[1, 2]))
    assert said["raised"] is None
    assert [rank for rank, _ in said["lost"]] == [1]
    assert said["lost"][0][1].startswith("rank 1 was killed by SIGKILL")


def test_a_failure_that_follows_from_a_loss_names_the_lost_rank(script):
    follows = KILL_RANK_1 + "if place.rank == 0:\n    raise ConnectionError('closed by the other side')\n"
    _, said = script.run(case(follows + "time.sleep(60)", may_lose=[1]))
    assert said["text"].startswith("rank 1 was killed by SIGKILL")


def test_a_failure_of_ones_own_is_not_blamed_on_a_loss(script):
    own = KILL_RANK_1 + "if place.rank == 0:\n    raise ValueError('mine')\n"
    _, said = script.run(case(own + "time.sleep(60)", may_lose=[1]))
    assert said["text"] == "rank 0 raised ValueError: mine"


def test_the_details_are_the_ranks_own_traceback(script):
    _, said = script.run(failing("raise ValueError('on purpose')"))
    assert said["details"].startswith("Traceback (most recent call last)")
    assert "raise ValueError('on purpose')" in said["details"]


def test_a_native_crash_leaves_its_python_stack(script):
    _, said = script.run(failing("os.abort()"))
    assert said["text"] == "rank 1 was killed by SIGABRT"
    assert said["details"].startswith("Fatal Python error: Aborted")
    assert "in function" in said["details"]


def test_a_mistake_of_the_user_passes_through(script):
    _, said = script.run(failing("raise DataError('train.gz: cut short; fetch it again')"))
    assert said["raised"] == "DataError"
    assert said["text"] == "train.gz: cut short; fetch it again"


def test_the_cause_wins_over_consequences_that_come_first(script):
    """Rank 2 takes half a second to tear down after its own error; its neighbours fail before it ends."""
    _, said = script.run(
        case(
            """
            if place.rank != 2:
                time.sleep(0.1)
                raise ConnectionResetError("connection closed by rank 2")
            try:
                raise ValueError("the cause")
            finally:
                time.sleep(0.5)
            """
        )
    )
    assert said["text"] == "rank 2 raised ValueError: the cause"


def test_a_consequence_says_who_had_returned(script):
    _, said = script.run(
        case("if place.rank:\n    time.sleep(0.3)\n    raise ConnectionResetError('closed')", ranks=2)
    )
    assert said["text"] == "rank 1 raised ConnectionResetError: closed (after rank 0 had returned)"


def test_a_testimony_names_the_silent_rank(script):
    _, said = script.run(
        case(
            """
            if place.rank == 2:
                os.kill(os.getpid(), signal.SIGSTOP)
            raise RankFailed(2, "fell silent in all_reduce")
            """,
            grace=0.2,
        )
    )
    assert (said["rank"], said["text"]) == (2, "rank 2 fell silent in all_reduce")


@pytest.mark.slow
def test_stopped_and_stubborn_ranks_are_killed(script, gone):
    _, said = script.run(
        case(
            """
            if place.rank == 0:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(f"ready{place.rank}").touch()
            if place.rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            while place.rank == 2:
                if Path("ready0").exists() and Path("ready1").exists():
                    raise ValueError("on purpose")
            time.sleep(60)
            """
        )
    )
    assert said["text"] == "rank 2 raised ValueError: on purpose"
    assert said["seconds"] < 15  # 3.8 s, not the 60 that the others sleep
    assert gone(script.pids_of("rank0", "rank1", "rank2"), 0)


def test_the_others_can_clean_up_when_one_fails(script):
    printed, _ = script.run(
        case(
            """
            try:
                if place.rank == 1:
                    raise ValueError
                time.sleep(60)
            finally:
                print("cleaned", place.rank)
            """
        )
    )
    assert sorted(printed) == ["cleaned 0", "cleaned 1", "cleaned 2"]


def test_what_a_rank_started_goes_with_it(script, gone):
    script.run(
        case(
            """
            process = subprocess.Popen(["sleep", "60"])
            Path(f"child{place.rank}").write_text(str(process.pid))
            if place.rank == 1:
                os._exit(1)
            """
        )
    )
    assert gone(script.pids_of("child0", "child1", "child2"), 0, orphans=True)


def test_the_deadline_names_a_rank_that_still_runs(script):
    _, said = script.run(case("time.sleep(60 if place.rank else 0)", deadline=0.5))
    assert said["text"] == "rank 1 was still running at the deadline of 0.5 s"
    assert said["seconds"] < 15


@pytest.mark.parametrize(
    ("number", "raised", "code"),
    [
        (signal.SIGINT, "KeyboardInterrupt", None),
        (signal.SIGTERM, "SystemExit", 143),
        (signal.SIGHUP, "SystemExit", 129),
    ],
)
def test_a_signal_to_the_launcher_ends_the_ranks_with_grace(script, gone, number, raised, code):
    process = script.begin(case("try:\n    time.sleep(60)\nfinally:\n    Path(f'clean{place.rank}').touch()"))
    ranks = script.wait_for("rank0", "rank1", "rank2")
    time.sleep(0.1)
    os.kill(process.pid, number)
    out, errors = process.communicate(timeout=10)
    assert f'"raised": "{raised}"' in out, errors
    assert f'"code": {code or "null"}' in out
    assert gone(ranks, 0)
    assert len(list(script.folder.glob("clean?"))) == 3


def test_ctrl_c_reaches_the_launcher_alone(script):
    """The terminal sends SIGINT to the whole foreground group: the ranks are not in it."""
    process = script.begin(case("time.sleep(60)"))
    ranks = script.wait_for("rank0", "rank1", "rank2")
    assert {os.getpgid(pid) for pid in ranks} == set(ranks)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert '"raised": "KeyboardInterrupt"' in out


def test_a_second_ctrl_c_ends_them_at_once(script, gone):
    process = script.begin(
        case(
            """
            signal.signal(signal.SIGINT, lambda *_: Path(f"asked{place.rank}").write_text("1"))
            here(place)
            while True:
                time.sleep(1)
            """,
            ranks=2,
            grace=30,
        )
    )
    ranks = script.wait_for("rank0", "rank1")
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    script.wait_for("asked0", "asked1")
    before = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert time.monotonic() - before < 15  # not the 30 s of grace
    assert '"raised": "KeyboardInterrupt"' in out
    assert gone(ranks, 0)


def test_the_ranks_die_with_a_killed_launcher(script, gone):
    process = script.begin(case("time.sleep(60)"))
    ranks = script.wait_for("rank0", "rank1", "rank2")
    process.kill()
    assert gone(ranks, 2, orphans=True)


def test_a_rank_whose_launcher_died_before_it_could_ask_ends_itself(script, gone):
    process = script.begin(
        """
        from paceline.launch import forked
        real = forked._LIBC.prctl
        class Slow:
            @staticmethod
            def prctl(*arguments):
                Path("rank0").write_text(str(os.getpid()))
                while os.getppid() == launcher:
                    time.sleep(0.01)
                return real(*arguments)
        launcher = os.getpid()
        forked._LIBC = Slow
        report(lambda place: Path("ran").touch(), 1)
        """
    )
    (rank,) = script.wait_for("rank0")
    process.kill()
    assert gone([rank], 5, orphans=True)
    assert not (script.folder / "ran").exists()
