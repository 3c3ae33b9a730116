"""Cores, quotas, memory, versions."""

from __future__ import annotations

import os

import pytest

from paceline.metrics import resources


@pytest.mark.parametrize(
    ("content", "quota"),
    [("max 100000", None), ("150000 100000", 1.5), ("50000 100000", 0.5), ("rubbish", None), ("1 0", None)],
)
def test_cpu_quota_of_cgroup_2(tmp_path, content, quota):
    (tmp_path / "cpu.max").write_text(content)
    assert resources.cpu_quota(tmp_path) == quota


def test_cpu_quota_of_cgroup_1(tmp_path):
    assert resources.cpu_quota(tmp_path) is None
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert resources.cpu_quota(tmp_path) == 2.0
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    assert resources.cpu_quota(tmp_path) is None


def test_a_quota_cuts_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(resources, "cpu_quota", lambda: 1.5)
    assert resources.usable_cores() == 2
    monkeypatch.setattr(resources, "cpu_quota", lambda: None)
    assert resources.usable_cores() == 8


def test_this_process_has_memory_and_versions():
    assert 0 < resources.proportional_memory_bytes() <= 2 * resources.peak_memory_bytes()
    assert {"python", "torch", "numpy"} <= set(resources.versions())
    assert resources.machine()["usable_cores"] >= 1
    assert resources.boot_id()
