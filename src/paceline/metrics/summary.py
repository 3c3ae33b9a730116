"""Merges the journals of a run into `summary.json` and one array per epoch number.

    journal-0.jsonl ─┐
    journal-1.jsonl ─┼─▶ Story per rank ─▶ who waited for whom ─▶ summary.json, train_accuracy.npy, …
    journal-2.jsonl ─┘

Wall time is the slowest rank's, epoch by epoch, never a sum over ranks. A rank's time in a collective is
split into waiting (until the last rank arrived) and communicating (from then on) by comparing the arrival
times in the journals; that needs a common clock, so it is done for ranks of one node that step together,
and elsewhere all of it counts as communicating. A rank that ends an epoch early waits for the slowest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from paceline.atomic import replacing, write_json
from paceline.metrics.accounts import cooperation, costs, waits
from paceline.metrics.clock import PHASES
from paceline.metrics.stories import Floats, Story, stories_of

SCHEMA = 1
SHOWN_PHASES = ("data", "compute", "communicate", "wait", "update", "other")
ARRAYS = ("train_accuracy", "test_accuracy", "train_loss", "test_loss")


def summarise(folder: Path) -> dict[str, Any]:
    """Read all journals of a finished run, write its summary and arrays, and return the summary."""
    stories = stories_of(folder)
    epochs = epoch_table(stories)
    for name in ARRAYS:
        _save_array(folder / f"{name}.npy", epochs[name])
    lengths, waited = _lengths(stories, epochs), waits(stories)
    summary = _identity(stories[0]) | lengths | _times(stories, epochs, lengths["samples"], waited)
    summary |= _quality(stories[0], epochs) | costs(stories)
    summary |= cooperation(stories, lengths["samples"], waited)
    summary |= _reached(stories[0], summary["updates"])
    summary["warnings"] = list(dict.fromkeys(note for story in stories for note in story.notes))
    summary["lost_ranks"] = sorted(line["rank"] for line in stories[0].lost)
    write_json(folder / "summary.json", summary)
    return summary


def note_losses(folder: Path, causes: Mapping[int, str]) -> None:
    """Add to a finished run's summary which ranks died, and of what, as the launcher saw it."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    summary["lost_ranks"] = sorted({*summary["lost_ranks"], *causes})
    for cause in causes.values():
        summary["warnings"].append(f"{cause}; the others went on without it")
    write_json(path, summary)


def epoch_table(stories: list[Story]) -> dict[str, Floats]:
    """Per-epoch columns: seconds (slowest rank), losses and accuracies over all ranks."""
    epochs = [line["epoch"] for line in stories[0].epochs]
    seconds = {e: [0.0] * len(stories) for e in epochs}
    loss, samples = dict.fromkeys(epochs, 0.0), dict.fromkeys(epochs, 0)
    for rank, story in enumerate(stories):
        for line in story.steps:
            epoch = line["epoch"]
            seconds[epoch][rank] += sum(line["seconds"].values())
            loss[epoch] += sum(line["loss"])
            samples[epoch] += sum(line["samples"])
    table = {
        "seconds": [max(seconds[e]) for e in epochs],
        "train_loss": [loss[e] / samples[e] for e in epochs],
    }
    for name in ("train_accuracy", "test_accuracy", "test_loss", "evaluate_seconds"):
        table[name] = [line[name] for line in stories[0].epochs]
    return {name: np.asarray(values, float) for name, values in table.items()}


def seconds_to(target: float, test_accuracy: Floats, epoch_seconds: Floats) -> float | None:
    """Training seconds until the first evaluation that reached the target, or None."""
    reached = np.flatnonzero(np.asarray(test_accuracy) >= target)
    return float(np.sum(epoch_seconds[: reached[0] + 1])) if reached.size else None


def _times(
    stories: list[Story], epochs: Mapping[str, Floats], samples: int, waited: Floats | None
) -> dict[str, Any]:
    ended = [bool(story.end) for story in stories]
    train = float(epochs["seconds"].sum())
    phases = _phases(stories, train, waited)
    start, end = stories[0].start, stories[0].end
    return {
        "train_seconds": train,
        "evaluate_seconds": float(epochs["evaluate_seconds"].sum()),
        "startup_seconds": max(story.start["startup_seconds"] for story in stories),
        "total_seconds": end["time"] - start["started"],
        "samples_per_second": samples / train if train else 0.0,
        **{f"{name}_seconds": float(np.mean(np.array(phases[name])[ended])) for name in SHOWN_PHASES},
        "phases": phases,
        "epoch_seconds": epochs["seconds"].tolist(),
    }


def _phases(stories: list[Story], train_seconds: float, matrix: Floats | None) -> dict[str, list[float]]:
    """Seconds by phase and rank; for each rank that was not lost they add up to the wall time of training."""
    waited = [0.0] * len(stories) if matrix is None else matrix.sum(axis=1).tolist()
    found: dict[str, list[float]] = {name: [] for name in SHOWN_PHASES}
    for story, wait in zip(stories, waited, strict=True):
        spent = dict.fromkeys(PHASES, 0.0)
        for line in story.steps:
            for name, seconds in line["seconds"].items():
                spent[name] += seconds
        wait = min(wait, spent["communicate"])
        # It ended its epochs before the slowest rank; or it died, and then waits for nobody.
        early = train_seconds - sum(spent.values()) if story.end else 0.0
        found["data"].append(spent["data"])
        found["compute"].append(spent["forward"] + spent["backward"])
        found["communicate"].append(spent["communicate"] - wait)
        found["wait"].append(wait + early)
        found["update"].append(spent["update"])
        found["other"].append(spent["other"])
    return found


def _identity(story: Story) -> dict[str, Any]:
    start = story.start
    config, plan = start["config"], start["plan"]
    copied = ("strategy", "collective", "data", "model", "optimizer", "lr", "momentum", "weight_decay",
              "schedule", "seed", "micro_batches")  # fmt: skip
    return {
        "schema": SCHEMA,
        "status": "done",
        "id": start["id"],
        "name": f"{config['strategy']} {config['collective']} p={plan['ranks']}",
        "scaling": start.get("scaling"),
        "variant": start.get("variant"),
        **{name: config[name] for name in copied},
        "collective_uses": start.get("collective_uses", ""),
        "ranks": plan["ranks"],
        "nodes": plan["nodes"],
        "threads_per_rank": plan["threads_per_rank"],
        "batch": plan["batch"],
        "global_batch": plan["global_batch"],
        "learning_rate": plan["learning_rate"],
        "learning_rate_rule": config["lr_rule"],
        "train_accuracy_mode": config["train_accuracy"],
        "target": config["target"],
        "parameters": start["parameters"],
        "data_bytes": start["data_bytes"],
        "data_verified": start["data_verified"],
        "data_notice": start["data_notice"],
        "launcher": start["launcher"],
        "machine": start["machine"],
        "versions": start["versions"],
        "commit": start["commit"],
        "command": start["command"],
        "started": start["started_at"],
        "config": config,
        "config_hash": start["config_hash"],
    }


def _lengths(stories: list[Story], epochs: Mapping[str, Floats]) -> dict[str, Any]:
    return {
        "epochs": len(epochs["seconds"]),
        "steps": stories[0].end["steps"],
        "samples": _samples(stories, len(epochs["seconds"])),
    }


def _samples(stories: list[Story], epochs: int) -> int:
    """As the ranks wrote them down; what a lost one had not written was trained, by it or by another."""
    if all(story.end for story in stories):
        return int(sum(story.column("samples").sum() for story in stories))
    plan = stories[0].start["plan"]
    return int(min(plan["samples"], epochs * plan["train_size"]))


def _reached(story: Story, updates: int) -> dict[str, Any]:
    """Samples and updates up to the end of each epoch; updates in proportion to rank 0's steps."""
    plan, steps = story.start["plan"], max(1, story.end["steps"])
    ends = [line["step"] for line in story.epochs]
    return {
        "epoch_samples": [min((at + 1) * plan["train_size"], plan["samples"]) for at in range(len(ends))],
        "epoch_updates": [updates * end / steps for end in ends],
    }


def _quality(story: Story, epochs: Mapping[str, Floats]) -> dict[str, Any]:
    target = story.start["config"]["target"]
    reached = seconds_to(target, epochs["test_accuracy"], epochs["seconds"]) if target else None
    return {
        **{name: float(epochs[name][-1]) for name in ARRAYS},
        "best_test_accuracy": float(epochs["test_accuracy"].max()),
        "seconds_to_target": reached,
    }


def _save_array(path: Path, values: Floats) -> None:
    with replacing(path) as file:
        np.save(file, values)
