"""A representative part of PyTorch's own tests for process groups, on our backend; run.py runs all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.run import FAILED, HUNG, PASSED

TESTS = (
    "all_reduce_sum_async", "all_reduce_coalesced_max", "all_gather_object_subgroup", "all_gather_coalesced_simple",
    "barrier_timeout_full_group", "broadcast_full_group", "gather_full_group", "isend", "reduce_group_min",
    "scatter_full_group", "send_recv_any_source", "accumulate_gradients_no_sync_allreduce_hook",
    "DistributedDataParallelCPU", "ddp_join_model_equivalence", "ddp_broadcast_buffer", "powerSGD_ddp_hook_parity",
)  # fmt: skip


@pytest.mark.slow
def test_what_passes_with_gloo_passes_with_ours():
    """One process for all, as torch's tests take seconds to import."""
    script = Path(__file__).parent / "run.py"
    names = "^test_(" + "|".join(TESTS) + ")$"
    done = subprocess.run(
        [sys.executable, script, "--match", names, "--backends", "paceline"],
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("test_")]
    assert len(lines) > 10, done.stderr[-2000:]
    assert not [line for line in lines if FAILED in line or HUNG in line]
    assert sum(PASSED in line for line in lines) > 10
