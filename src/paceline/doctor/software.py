"""The extension, torch, MPI, SLURM."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.doctor.line import ADVICE, BROKEN, FINE, Line

_OLDEST = (2, 4)
_FAMILIES = {
    "MPICH": ("mpich", "hydra"),
    "Open MPI": ("open mpi", "openmpi", "open-mpi", "openrte", "prte"),
    "Intel MPI": ("intel",),
}
_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def extension(reason: str | None) -> Line:
    """`reason`: why shared memory cannot be used."""
    if reason is None:
        return Line("extension", FINE, "the shared-memory core is built")
    return Line("extension", ADVICE, f"no shared memory: {reason}", "until then collectives go through gloo")


def torch(facts: Mapping[str, Any] | None, failure: str) -> Line:
    """`facts` of a process that imported it; `failure`: how that process ended instead."""
    if facts is None:
        return Line(
            "torch", BROKEN, f"cannot be imported: {failure}", f"pip install torch --index-url {_CPU_INDEX}"
        )
    found = f"{facts['version']}, imported in {facts['seconds']:.1f} s"
    oldest = ".".join(map(str, _OLDEST))
    if _version(facts["version"]) < _OLDEST:
        return Line("torch", BROKEN, found, f"{oldest} or newer is needed: pip install --upgrade torch")
    if not facts["distributed"] or not facts["gloo"]:
        return Line("torch", BROKEN, f"{found}, built without gloo", "install a wheel from pytorch.org")
    if facts["gpus"]:
        return Line("torch", FINE, f"{found}, {facts['gpus']} GPU{'s' * (facts['gpus'] > 1)}")
    if facts["cuda"]:
        return Line(
            "torch", ADVICE, f"{found}, for CUDA {facts['cuda']}, but sees no GPU",
            f"without a GPU, the CPU build saves gigabytes: --index-url {_CPU_INDEX}",
        )  # fmt: skip
    return Line("torch", FINE, f"{found}, for CPUs")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d+", text)[:2])


def mpi(launcher: str | None, launcher_says: str, library: str | None, failure: str) -> Line:
    """`launcher`: where mpiexec is; `library`: what mpi4py runs on, or None with the `failure` to load it."""
    advice = "wanted? pip install mpi4py mpich"
    if launcher is None and library is None:
        return Line("MPI", ADVICE if failure else FINE, failure or "not installed, and not needed", advice)
    if library is None:
        if failure:
            return Line(
                "MPI",
                BROKEN,
                f"mpi4py cannot be loaded: {failure}",
                "pip install --force-reinstall mpi4py mpich",
            )
        return Line("MPI", FINE, f"{launcher} without mpi4py", "wanted? pip install mpi4py")
    if launcher is None:
        return Line(
            "MPI",
            ADVICE,
            f"mpi4py on {_family(library) or library}, but no mpiexec",
            "put its bin folder on PATH",
        )
    ours, theirs = _family(library), _family(launcher_says)
    if ours and theirs and ours != theirs:
        return Line(
            "MPI", BROKEN, f"mpi4py runs on {ours}, {launcher} is {theirs}'s: all would be rank 0 of 1",
            f"put {ours}'s mpiexec first on PATH",
        )  # fmt: skip
    return Line("MPI", FINE, f"mpi4py on {ours or library}, {launcher}")


def _family(said: str) -> str | None:
    low = said.lower()
    return next((name for name, words in _FAMILIES.items() if any(word in low for word in words)), None)


def slurm(programs: Sequence[str], variables: Mapping[str, str], failure: str) -> Line:
    """`programs` of srun and sbatch that are here; `failure`: why the controller does not answer."""
    job = variables.get("SLURM_JOB_ID")
    if job:
        tasks, nodes = variables.get("SLURM_NTASKS", "1"), variables.get("SLURM_JOB_NUM_NODES", "1")
        each = variables.get("SLURM_CPUS_PER_TASK")
        found = f"in job {job}: {nodes} node(s), {tasks} task(s), {each or '1'} CPU(s) each"
        if each is None and tasks != "1":
            return Line(
                "SLURM", ADVICE, found, "say --cpus-per-task, also to srun, or every rank has one CPU"
            )
        return Line("SLURM", FINE, found)
    if not programs:
        return Line("SLURM", FINE, "not installed, and not needed")
    if failure:
        return Line(
            "SLURM", ADVICE, f"{programs[0]} is here, but no controller answers: {failure}", "ask with sinfo"
        )
    return Line("SLURM", FINE, f"{', '.join(programs)}; not inside a job")
