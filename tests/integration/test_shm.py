"""Shared memory between real ranks: right in every way of calling it, and loud when something is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paceline.comm import shm
from paceline.errors import ConfigError
from paceline.registry import COLLECTIVES

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shm.unavailable() is not None, reason=str(shm.unavailable()))


@pytest.fixture(autouse=True)
def nothing_left():
    before = set(Path("/dev/shm").glob("paceline*"))
    yield
    assert set(Path("/dev/shm").glob("paceline*")) <= before


@pytest.mark.parametrize("size", [2, 3, 5])
def test_many_rounds_through_small_buffers(zygote, size):
    lengths = [0, 1, 255, 256, 257, 1000, 4099]
    kinds = ["float32", "float64", "bfloat16", "int8", "int64"]
    for rank in zygote.run("cases.shm:small_buffers", size, lengths=lengths, kinds=kinds):
        for case, (ours, torchs) in rank.items():
            tolerance = 0.05 if "bfloat16" in case else 1e-5
            torch.testing.assert_close(ours, torchs, rtol=tolerance, atol=tolerance, msg=str(case))


@pytest.mark.parametrize(("size", "kind"), [(2, "float32"), (3, "bfloat16"), (4, "float64"), (2, "int32")])
def test_allocated_buffers_give_the_same_bits(zygote, size, kind):
    for rank in zygote.run("cases.shm:allocated", size, length=150_001, kind=kind):
        for case, (buffer, own) in rank.items():
            assert torch.equal(buffer, own), case


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_every_half_survives_the_way_through_float32(zygote, kind):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    dtype = getattr(torch, kind)
    nan = every.view(dtype).isnan()
    for found in zygote.run("cases.shm:halves", 2, kind=kind):
        assert torch.equal(found.view(dtype).isnan(), nan)
        assert torch.equal(found[~nan], every[~nan])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_round_as_torch_does(zygote, kind):
    for ours, torchs in zygote.run("cases.shm:rounding", 2, kind=kind):
        assert torch.equal(ours, torchs)


@pytest.mark.parametrize(
    ("case", "seen"),
    [
        ("shape", "rank 2 is at sum #4, 1025 float32; rank 0 at sum #4, 1024 float32"),
        ("type", "rank 2 is at sum #4, 1024 int32; rank 0 at sum #4, 1024 float32"),
        ("operation", "rank 2 is at broadcast #4, 1024 float32 from rank 0; rank 0 at sum #4, 1024 float32"),
        ("reduce operation", "rank 2 is at max #4, 1024 float32; rank 0 at sum #4, 1024 float32"),
        ("root", "rank 2 is at broadcast #4, 1024 float32 from rank 1; rank 0 at broadcast #4, 1024 float32 from rank 0"),
        ("order", "rank 2 is at sum #4, 7 float32; rank 0 at sum #4, 5 float32"),
        ("large and small", "rank 2 is at sum #4, 2000000 float32; rank 0 at sum #4, 10 float32"),
    ],
)  # fmt: skip
def test_ranks_that_disagree_hear_the_same_line(zygote, case, seen):
    for said, again, total in zygote.run("cases.shm:disagree", 3, case=case):
        assert said == again == f"RanksDisagree: ranks disagree: {seen}"
        assert total == 9.0


def test_a_tensor_among_allocated_buffers_is_a_disagreement(zygote):
    for said in zygote.run("cases.shm:mixed_memory", 2):
        assert said == (
            "ranks disagree: rank 1 gave part 0 of allocated buffer 0, rank 0 a tensor of its own, "
            "to sum #1, 200000 float32"
        )


def test_groups_of_some_of_the_ranks(zygote):
    for rank, found in enumerate(zygote.run("cases.shm:groups", 4)):
        assert found == sorted({2.0 if rank % 2 == 0 else 4.0, 6.0})


def test_threads_each_with_a_group(zygote):
    for totals in zygote.run("cases.shm:threads", 2, rounds=300):
        assert totals == [600.0] * 3


def test_memory_stays_constant(zygote):
    for before, after, files in zygote.run("cases.shm:soak", 2, rounds=20_000):
        assert after - before < 200_000
        assert files == 0


def test_a_rank_that_closes_is_named(zygote):
    ranks = zygote.run("cases.shm:leaves", 3)
    for rank in (0, 2):
        assert ranks[rank] == (
            f"RankFailed: rank 1 closed its collective while rank {rank} waited for it in barrier #2; "
            "its last call was barrier #1"
        ) or ranks[rank].startswith("RankFailed: rank 1 closed its collective")


def test_named_memory_has_no_name_once_all_have_it(zygote):
    for total, names in zygote.run("cases.shm:in_dev_shm", 3, length=300_000):
        assert total == 3.0
        assert names == []


SMALL = """
import subprocess, sys
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + sys.argv[1], "tmpfs", "/dev/shm"], check=True)
sys.path.insert(0, "tests")
from zygote import Zygote
with Zygote() as zygote:
    print(zygote.run("cases.shm:in_dev_shm", 2, length=300_000))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="mounts a small /dev/shm: needs root"
)
@pytest.mark.parametrize(
    ("size", "seen"), [("256k", "[(2.0, []), (2.0, [])]"), ("4k", "shared memory cannot be had")]
)
def test_a_small_dev_shm_gives_small_buffers_or_a_message(size, seen):
    command = ["unshare", "-m", sys.executable, "-c", SMALL, size]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    if "unshare" in done.stderr or "mount" in done.stderr.partition("Error")[0]:
        pytest.skip(f"cannot mount here: {done.stderr.splitlines()[-1]}")
    assert seen in done.stdout + done.stderr


@pytest.mark.slow
def test_a_dead_or_silent_rank_is_named_in_every_operation():
    command = [sys.executable, "benchmarks/faults.py", "--trials", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("setarch"), reason="needs gcc and setarch")
@pytest.mark.parametrize("ranks", [2, 5])
def test_no_race_under_thread_sanitizer(tmp_path, ranks):
    flags = ["-g", "-O1", "-std=gnu11", "-fsanitize=thread", "-ffp-contract=off"]
    source = str(ROOT / "tests/native/shm_threads.c")
    built = subprocess.run(
        ["gcc", *flags, source, "-lpthread", "-o", str(tmp_path / "ranks")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "cannot find" in built.stderr:
        pytest.skip("this compiler has no ThreadSanitizer")
    assert built.returncode == 0, built.stderr
    command = ["setarch", "-R", str(tmp_path / "ranks"), str(ranks), "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_without_the_extension_it_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "paceline.comm.shm._core", None)
    assert "C extension is not built" in str(shm.unavailable())
    with pytest.raises(ConfigError, match=r"C extension is not built.*choose another collective"):
        COLLECTIVES.make("shm", type("Alone", (), {"rank": 0, "size": 1})())
