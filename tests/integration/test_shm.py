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


def test_nothing_grows_in_many_operations():
    """The short form of the million operations in docs/log.md."""
    command = [sys.executable, "benchmarks/soak.py", "--operations", "20000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "nothing grew" in done.stdout, done.stdout + done.stderr


def test_a_rank_that_closes_is_named(zygote):
    ranks = zygote.run("cases.shm:leaves", 3)
    for rank in (0, 2):
        assert ranks[rank] == (
            f"RankFailed: rank 1 closed its collective while rank {rank} waited for it in barrier #2; "
            "its last call was barrier #1"
        ) or ranks[rank].startswith("RankFailed: rank 1 closed its collective")


def test_a_rank_that_comes_too_late_hears_that_it_was_given_up(zygote):
    first, second = zygote.run("cases.shm:late", 2)
    assert first == ["rank 1 did not come to barrier #2 within 1 s; its last call was barrier #1"] * 2
    assert second[-1] == "rank 1 was given up by a rank that had waited 1 s for it; now in barrier #3"


def test_named_memory_has_no_name_once_all_have_it(zygote):
    for total, names in zygote.run("cases.shm:in_dev_shm", 3, length=300_000):
        assert total == 3.0
        assert names == []


SMALL = """
import subprocess, sys
sys.path.insert(0, "tests")
from zygote import Zygote
with Zygote() as zygote:
    for size in ("64m", "256k", "4k"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + size, "tmpfs", "/dev/shm"], check=True)
        try:
            print(size, zygote.run("cases.shm:in_dev_shm", 2, length=300_000))
        except AssertionError as error:
            print(size, str(error).splitlines()[-1])
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="mounts a small /dev/shm: needs root"
)
def test_a_small_dev_shm_gives_small_buffers_or_a_message():
    """Each mount is private to a mount namespace. 64 MB is what a default container has."""
    # The zygote starts before the mounts, in the same namespace, so its ranks see them.
    command = ["unshare", "-m", sys.executable, "-c", SMALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"cannot mount here: {done.stderr.splitlines()[-1]}")
    large, small, tiny = done.stdout.splitlines()
    assert large == "64m [(2.0, []), (2.0, [])]"
    assert small == "256k [(2.0, []), (2.0, [])]"
    assert tiny.startswith("4k ") and "shared memory cannot be had" in tiny


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
