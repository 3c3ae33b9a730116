"""The torch.distributed backend between real ranks: each call beside gloo's, futures, errors, choice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import paceline.backend
from paceline.comm import shm
from paceline.registry import COLLECTIVES

KINDS = ["float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8"]
ROOT = Path(__file__).parents[2]
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
        assert found["unknown"].startswith(
            "Invalid scalar type: cannot combine torch.uint16 over ranks; convert"
        )
        assert found["still"] == 3.0


def test_callbacks_may_start_and_wait_for_other_collectives(zygote):
    for found in zygote.run("cases.backend:futures", 2):
        assert found == {"value": [10.0] * 4, "seen": [2.0], "done": True}


def test_works_that_nobody_holds_are_done(zygote):
    assert zygote.run("cases.backend:dropped", 2) == [True, True]


def test_a_wait_with_a_time_of_its_own(zygote):
    said, _ = zygote.run("cases.backend:timed_wait", 2)
    assert said == "Timed out waiting 50ms for a collective to end"


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


PROGRAMS = [
    "ddp", "no_sync", "join", "fp16_hook", "power_sgd", "zero", "buffers", "dtensor", "functional",
    "differentiable", "fsdp2_and_dcp", pytest.param("compiled", marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_pytorch_builds_on_a_group_runs_on_ours(zygote, program):
    for pairs in zygote.run("cases.backend_programs:run", 2, program=program):
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_dead_rank_raises_wherever_it_is_waited_for(tmp_path):
    script = Path(__file__).parent.parent / "cases" / "backend_death.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        found = json.loads((tmp_path / str(rank)).read_text())
        assert set(found) == {"call", "work", "future", "callback", "backward", "afterwards"}
        for name, (kind, said) in found.items():
            assert kind in ("DistBackendError", "RuntimeError"), (name, kind, said)
            assert "rank 2 ended while" in said, (name, said)


def test_torch_knows_the_names_without_an_import(tmp_path):
    """The entry point, as an installed package has it: names are there, nothing heavy was loaded."""
    about = tmp_path / "probe-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 0\n")
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["torch.backends"]
    (about / "entry_points.txt").write_text(f"[torch.backends]\npaceline = {entry['paceline']}\n")
    code = (
        "import sys, torch; from torch.distributed import Backend; "
        "print(Backend('paceline_ring') in Backend.backend_list, 'paceline.comm' in sys.modules)"
    )
    source = str(Path(paceline.backend.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": f"{source}:{tmp_path}"},
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.slow
def test_the_example_runs_under_torchrun():
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
         ROOT / "examples" / "02_stock_ddp_on_our_backend.py"],
        capture_output=True, text=True, timeout=110,
        env={**os.environ, "PYTHONPATH": str(Path(paceline.backend.__file__).parent.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2 ranks, loss 0.0" in done.stdout and "replicas equal: True" in done.stdout


def test_names_are_the_registry():
    assert paceline.backend.names() == ["paceline", *(f"paceline_{name}" for name in COLLECTIVES.names())]
