"""Every judgement of the doctor on facts made up for it: fine, advice or broken, and what it says to do."""

from __future__ import annotations

import pytest

from paceline.doctor import files, machine, measured, network, software


def check(line, state, said):
    assert line.state == state, line
    assert said in f"{line.found} | {line.do}"
    assert line.do or state == "fine"
    assert "\n" not in line.found + line.do


GB = 1 << 30
UP = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.5", "fe80::1%eth0"]}
TORCH = {"version": "2.13.0+cpu", "seconds": 1.5, "distributed": True, "gloo": True, "cuda": None, "gpus": 0}


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ((8, 8, None), "fine", "8 usable of 8"), ((8, 2, None), "fine", "2 usable of 8"),
        ((8, 8, 4.0), "fine", "4 usable of 8, quota 4 cores"), ((8, 8, 1.5), "advice", "not a whole number"),
        ((8, 8, 0.5), "advice", "quota 0.5"), ((1, 1, None), "advice", "cannot be faster"), ((4, 2, 3.0), "fine", "2 usable of 4"),
    ],
)  # fmt: skip
def test_cores(facts, state, said):
    check(machine.cores(*facts), state, said)


@pytest.mark.parametrize(
    ("variables", "state", "said"),
    [
        ({}, "fine", "is not set"), ({"OMP_NUM_THREADS": "2"}, "fine", "=2"), ({"OMP_NUM_THREADS": "3"}, "advice", "2 usable cores"),
        ({"OMP_NUM_THREADS": "all"}, "broken", "'all' is not a number"), ({"OMP_NUM_THREADS": "0"}, "broken", "unset"),
    ],
)  # fmt: skip
def test_threads(variables, state, said):
    check(machine.threads(variables, 2), state, said)


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ((8 * GB, 7 * GB, True), "fine", "7.0 GB free of 8.0 GB, and not needed"), ((8 * GB, 7 * GB, False), "fine", "7.0 GB"),
        ((64 << 20, 60 << 20, True), "advice", "--shm-size"), ((8 * GB, 1 << 20, True), "advice", "1 MB free"),
        ((None, 0, True), "advice", "mount"), ((None, 0, False), "broken", "no memfd"),
    ],
)  # fmt: skip
def test_shared_memory(facts, state, said):
    check(machine.shared_memory(*facts), state, said)


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ((None, UP, "n1", ["10.0.0.5"]), "fine", "n1 is 10.0.0.5 on eth0"),
        ((None, UP, "n1", ["127.0.0.1"]), "advice", "export GLOO_SOCKET_IFNAME=eth0"),
        ((None, UP, "n1", []), "advice", "has no address"), ((None, UP, "n1", ["10.9.9.9"]), "advice", "no address of this machine"),
        ((None, {"lo": ["127.0.0.1"]}, "n1", ["127.0.0.1"]), "fine", "no other interface"),
        (("eth0", UP, "n1", []), "fine", "=eth0"), (("ib0", UP, "n1", ["10.0.0.5"]), "broken", "choose of eth0, lo"),
        (("eth0,ib0", UP, "n1", []), "broken", "names ib0"),
    ],
)  # fmt: skip
def test_gloo_interface(facts, state, said):
    check(network.gloo_interface(*facts), state, said)


def test_extension():
    check(software.extension(None), "fine", "built")
    check(
        software.extension("its C extension is not built; install a C compiler"),
        "advice",
        "install a C compiler",
    )


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ({}, "fine", "for CPUs"), ({"gpus": 2, "cuda": "12.8"}, "fine", "2 GPUs"), ({"cuda": "12.8"}, "advice", "sees no GPU"),
        ({"version": "2.3.1"}, "broken", "2.4 or newer"), ({"version": "2.10.0a0"}, "fine", "2.10"), ({"gloo": False}, "broken", "without gloo"),
    ],
)  # fmt: skip
def test_torch(facts, state, said):
    check(software.torch(TORCH | facts, ""), state, said)


def test_torch_that_cannot_be_imported():
    check(software.torch(None, "its process ended with signal 11"), "broken", "signal 11")


HYDRA, OPEN, MPICH = "HYDRA build details:", "mpirun (Open MPI) 5.0.6", "MPICH Version: 5.0"


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ((None, "", None, ""), "fine", "not needed"), (("/bin/mpiexec", HYDRA, MPICH, ""), "fine", "mpi4py on MPICH, /bin/mpiexec"),
        (("/bin/mpiexec", OPEN, MPICH, ""), "broken", "rank 0 of 1"), (("/bin/mpiexec", HYDRA, "Open MPI v5.0", ""), "broken", "put Open MPI's mpiexec first"),
        ((None, "", MPICH, ""), "advice", "no mpiexec"), (("/bin/mpiexec", OPEN, None, ""), "fine", "without mpi4py"),
        (("/bin/mpiexec", OPEN, None, "libmpi.so: cannot open"), "broken", "libmpi.so"), ((None, "", None, "libmpi.so: cannot open"), "advice", "libmpi.so"),
        (("/bin/mpiexec", "what?", "Some MPI", ""), "fine", "Some MPI"),
    ],
)  # fmt: skip
def test_mpi(facts, state, said):
    check(software.mpi(*facts), state, said)


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        (([], {}, ""), "fine", "not installed"), ((["srun", "sbatch"], {}, ""), "fine", "srun, sbatch; not inside"),
        ((["srun"], {}, "Unable to contact slurm controller"), "advice", "Unable to contact"),
        ((["srun"], {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "3"}, ""), "fine", "job 7: 2 node(s), 4 task(s), 3 CPU(s)"),
        ((["srun"], {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, ""), "advice", "--cpus-per-task"),
    ],
)  # fmt: skip
def test_slurm(facts, state, said):
    check(software.slurm(*facts), state, said)


def test_data_sets_and_cache():
    here = {"digits": None, "mnist": "mnist: no train in /a; run"}
    check(files.data_sets(here, None, False), "fine", "paceline data fetch mnist")
    check(files.data_sets({"digits": None}, "/data", True), "fine", "here: digits")
    check(files.data_sets(here, "/data", False), "broken", "PACELINE_DATA=/data is not a folder")
    partial = here | {"mnist": "mnist: /a/labels.gz is missing (1 of 4 files); run"}
    check(files.data_sets(partial, None, False), "advice", "/a/labels.gz is missing (1 of 4 files)")
    check(files.cache("/c", ""), "fine", "/c")
    check(files.cache("/c", "Read-only file system"), "broken", "PACELINE_CACHE")


def rows(**times):
    row = {"elements": 1000, "same_bits": True, "max_error": 1e-7, "skipped": {}}
    return [row | {"collective": name, "median_us": time} for name, time in times.items()]


def test_all_reduce():
    fast = rows(native=400.0, shm=4.0)
    check(measured.all_reduce(fast, "native", ""), "fine", "1,000 numbers: shm 4 µs, gloo 400 µs (100×)")
    check(measured.all_reduce(rows(native=400.0, ring=800.0), "native", ""), "advice", "native 400 µs")
    check(
        measured.all_reduce([row | {"skipped": {"shm": "not built"}} for row in fast], "native", ""),
        "advice",
        "shm was left out: not built",
    )
    check(
        measured.all_reduce([fast[0], fast[1] | {"max_error": 0.5}], "native", ""),
        "broken",
        "shm of 1,000 numbers is wrong by 5.0e-01",
    )
    check(
        measured.all_reduce([fast[0], fast[1] | {"max_error": float("nan")}], "native", ""),
        "broken",
        "is wrong",
    )
    check(
        measured.all_reduce([fast[0] | {"same_bits": False}], "native", ""), "broken", "differs between ranks"
    )
    check(measured.all_reduce(None, "native", "rank 1 was killed"), "broken", "rank 1 was killed")
    check(measured.all_reduce([], "native", ""), "fine", "--seconds 0")
