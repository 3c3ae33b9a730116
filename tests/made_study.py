"""Makes the files of a study without training anything: what `paceline study` leaves, with plausible numbers.

Strong and weak scaling at p = 1, 2, 4, 8, three repeats, two cores (so 4 and 8 ranks are crowded), one
failed cell, one cell not run, data that could not be verified. Everything follows from the seed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from paceline.study.groups import write_laws

RANKS = (1, 2, 4, 8)
TIME = {1: 28.4, 2: 15.4, 4: 13.1, 8: 14.0}
PHASES = ("data", "compute", "communicate", "wait", "update", "other")
SHARE = {"data": 0.06, "update": 0.07, "other": 0.03}
TRAINING_SAMPLES = 60_000
NOTICE = (
    "train-images-idx3-ubyte.gz is not the official file (md5 0123456789abcdef, expected f68b3c2dcbeaaa9f)"
)


def summary(name, scaling, p, seed, *, epochs=15, batch=128) -> dict:
    """One summary.json; weak scaling loses accuracy with p because it makes fewer updates."""
    random = np.random.default_rng([p, seed, scaling == "weak"])
    seconds = float(TIME[p] * random.uniform(0.97, 1.03) * (0.94 if scaling == "weak" else 1.0))
    per_rank = batch if scaling == "weak" else batch / p
    per_rank = int(per_rank) if float(per_rank).is_integer() else per_rank
    lost = 0.006 * np.log2(p) ** 1.5 if scaling == "weak" else 0.0
    accuracy = float(0.9861 - lost + random.normal(0, 0.0006))
    share = SHARE | {"communicate": 0.05 * np.log2(p), "wait": 0.04 * np.log2(p)}
    share["compute"] = 1 - sum(share.values())
    mean = {phase: float(share[phase] * seconds) for phase in PHASES}
    config = {
        "data": "mnist", "model": "mnist_cnn", "strategy": "ddp", "collective": "native", "ranks": p,
        "epochs": epochs, "batch": per_rank, "lr": 0.05, "momentum": 0.9, "seed": seed,
        "allow_unverified": True,
    }  # fmt: skip
    return {
        "schema": 1, "id": name, "name": f"ddp native p={p}", "status": "done", "strategy": "ddp",
        "collective": "native", "ranks": p, "nodes": 1, "threads_per_rank": max(1, 2 // p),
        "scaling": scaling,
        "data": "mnist", "model": "mnist_cnn", "optimizer": "sgd", "lr": 0.05, "momentum": 0.9,
        "weight_decay": 1e-4, "schedule": "one_cycle", "seed": seed, "micro_batches": 1, "batch": per_rank,
        "global_batch": int(per_rank * p), "epochs": epochs,
        "steps": epochs * TRAINING_SAMPLES // int(per_rank * p),
        "samples": epochs * TRAINING_SAMPLES, "train_seconds": seconds, "evaluate_seconds": 1.2,
        "startup_seconds": 2.1, "total_seconds": seconds + 3.4,
        "samples_per_second": epochs * TRAINING_SAMPLES / seconds,
        **{f"{phase}_seconds": mean[phase] for phase in PHASES},
        "phases": {phase: [mean[phase]] * p for phase in PHASES},
        "epoch_seconds": [seconds / epochs] * epochs,
        "train_loss": 0.03, "train_accuracy": accuracy + 0.006, "test_loss": 0.05, "test_accuracy": accuracy,
        "train_accuracy_mode": "eval", "best_test_accuracy": accuracy + 0.001, "target": 0.95,
        "seconds_to_target": seconds * 0.3,
        "messages": 7_000, "bytes_sent": 7_000 * 4 * 21_000,
        "peak_memory_bytes": [int(310e6 + 4e6 * rank) for rank in range(p)],
        "proportional_memory_bytes": [int(190e6 / p + 60e6)] * p, "data_bytes": 47_040_000,
        "data_verified": False, "data_notice": NOTICE, "learning_rate_rule": "none", "parameters": 41_834,
        "warnings": ["ranks > cores: 8 ranks share 2 cores; times measure sharing as well"] if p == 8 else [],
        "machine": {"host": "bench-1", "cpu": "EPYC 7B13", "cores": 2, "usable_cores": 2,
                    "memory_bytes": 16e9, "os": "Debian 12", "kernel": "6.1.0"},
        "versions": {"python": "3.11.2", "torch": "2.13.0", "numpy": "2.3.4", "paceline": "0.1.0"},
        "commit": "abc1234", "command": f"paceline train --ranks {p}", "started": "2026-11-18T20:00:00+00:00",
        "config": config, "config_hash": "0123456789ab",
    }  # fmt: skip


def make_run(folder: Path, made: dict) -> Path:
    """One run folder."""
    folder.mkdir(parents=True)
    epochs = np.arange(1, made["epochs"] + 1)
    learning = np.exp(-epochs / 2.0) - np.exp(-made["epochs"] / 2.0)
    for part in ("train", "test"):
        final = made[f"{part}_accuracy"]
        np.save(folder / f"{part}_accuracy.npy", final - 0.4 * learning)
        np.save(folder / f"{part}_loss.npy", made[f"{part}_loss"] + learning)
    (folder / "summary.json").write_text(json.dumps(made))
    (folder / "config.toml").write_text("seed = 0\n")
    return folder


def make_failed(folder: Path) -> Path:
    """A run that a rank ended."""
    folder.mkdir(parents=True)
    details = "Traceback (most recent call last):\n  …\nRuntimeError: out of memory <4 GB>"
    said = {"error": "rank 3 was killed (signal 9): out of memory?", "rank": 3, "details": details}
    (folder / "failed.json").write_text(json.dumps(said))
    return folder


def make_study(
    folder: Path,
    *,
    scalings: tuple = ("strong", "weak"),
    ranks: tuple = RANKS,
    repeats: int = 3,
    laws: bool = True,
) -> Path:
    """A whole study folder, as `paceline study` and write_laws leave it."""
    made, cells = [], []
    for scaling in scalings:
        for p in ranks:
            for repeat in range(repeats):
                name = f"{scaling}-ddp-native-p{p}-b128-s{repeat}-1a2b3c4d"
                made.append(summary(name, scaling, p, repeat))
                make_run(folder / "cells" / name, made[-1])
                cells.append(_cell(name, scaling, p, repeat, "done"))
    make_failed(folder / "cells" / "strong-ddp-native-p16-b128-s0-1a2b3c4d")
    cells.append(_cell("strong-ddp-native-p16-b128-s0-1a2b3c4d", "strong", 16, 0, "failed"))
    cells.append(_cell("strong-ddp-native-p16-b128-s1-1a2b3c4d", "strong", 16, 1, "missing"))
    about = {
        "schema": 1, "name": "scaling", "title": "Scaling of data-parallel MNIST",
        "question": "What does another process buy, and what does it cost?", "cells": cells,
        "command": "paceline study studies/scaling.toml --out runs/scaling", "commit": "abc1234",
        "machine": made[0]["machine"], "targets": [0.95, 0.98],
    }  # fmt: skip
    (folder / "study.json").write_text(json.dumps(about))
    if laws:
        write_laws(folder)
    return folder


def _cell(name: str, scaling: str, p: int, repeat: int, status: str) -> dict:
    return {
        "id": name, "scaling": scaling, "strategy": "ddp", "collective": "native", "ranks": p,
        "batch": 128, "repeat": repeat, "seed": repeat, "status": status,
    }  # fmt: skip
