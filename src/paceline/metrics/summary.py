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

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.atomic import replacing, write_json
from paceline.errors import PacelineError
from paceline.metrics.journal import read

SCHEMA = 1
SHOWN_PHASES = ("data", "compute", "communicate", "wait", "update", "other")
ARRAYS = ("train_accuracy", "test_accuracy", "train_loss", "test_loss")
Floats = NDArray[np.float64]


@dataclass
class Story:
    """One rank's journal, by kind."""

    start: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> Floats:
        """One number per step, over the whole run."""
        return np.concatenate([np.zeros(0), *(np.asarray(line[name], float) for line in self.steps)])

    def moments(self, name: str) -> Floats:
        """Arrivals or returns of each step in seconds of this node's clock (nan where nothing was sent)."""
        parts = [line["at"] + np.asarray(line[name], float) * 1e-6 for line in self.steps]
        return np.concatenate([np.zeros(0), *parts])


def summarise(folder: Path) -> dict[str, Any]:
    """Read all journals of a finished run, write its summary and arrays, and return the summary."""
    stories = stories_of(folder)
    epochs = epoch_table(stories)
    for name in ARRAYS:
        _save_array(folder / f"{name}.npy", epochs[name])
    summary = _identity(stories[0]) | _lengths(stories, epochs) | _times(stories, epochs)
    summary |= _quality(stories[0], epochs) | _costs(stories) | _cooperation(stories, summary["samples"])
    summary["warnings"] = list(dict.fromkeys(note for story in stories for note in story.notes))
    write_json(folder / "summary.json", summary)
    return summary


def stories_of(folder: Path) -> list[Story]:
    """The journals in rank order; one that is missing or has no end is an error that names the rank."""
    stories = []
    for rank, path in enumerate(sorted(folder.glob("journal-*.jsonl"), key=_rank_of)):
        story = Story()
        for line in read(path):
            kind = line.pop("kind")
            if kind in ("start", "end"):
                setattr(story, kind, line)
            elif kind == "note":
                story.notes.append(line["text"])
            else:
                getattr(story, {"steps": "steps", "epoch": "epochs"}[kind]).append(line)
        if _rank_of(path) != rank or not story.end:
            raise PacelineError(f"{path} is incomplete: rank {rank} did not finish")
        stories.append(story)
    if not stories:
        raise PacelineError(f"no journal in {folder}: is it the folder of a run?")
    return stories


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


def waits(stories: list[Story]) -> NDArray[np.float64] | None:
    """Seconds that rank i waited for rank j to arrive, or None where that cannot be known.

    Each step's waiting is for the rank that came last."""
    clocks = {story.start["boot_id"] for story in stories}
    arrivals = [story.moments("arrive") for story in stories]
    if len(clocks) > 1 or not stories[0].start["in_rounds"] or len({len(a) for a in arrivals}) > 1:
        return None
    arrived, left = np.stack(arrivals), np.stack([story.moments("leave") for story in stories])
    met = ~np.isnan(arrived).any(axis=0)
    arrived, left = arrived[:, met], left[:, met]
    waited = np.maximum(np.minimum(arrived.max(axis=0) - arrived, left - arrived), 0)
    last = arrived.argmax(axis=0) if met.any() else np.zeros(0, int)
    columns = [waited[:, last == rank].sum(axis=1) for rank in range(len(stories))]
    return np.stack(columns, axis=1)


def _times(stories: list[Story], epochs: Mapping[str, Floats]) -> dict[str, Any]:
    phases = _phases(stories, float(epochs["seconds"].sum()))
    train = float(epochs["seconds"].sum())
    start, end = stories[0].start, stories[0].end
    return {
        "train_seconds": train,
        "evaluate_seconds": float(epochs["evaluate_seconds"].sum()),
        "startup_seconds": max(story.start["startup_seconds"] for story in stories),
        "total_seconds": end["time"] - start["started"],
        "samples_per_second": float(sum(s.column("samples").sum() for s in stories)) / train
        if train
        else 0.0,
        **{f"{name}_seconds": float(np.mean(phases[name])) for name in SHOWN_PHASES},
        "phases": phases,
        "epoch_seconds": epochs["seconds"].tolist(),
    }


def _phases(stories: list[Story], train_seconds: float) -> dict[str, list[float]]:
    """Seconds by phase and rank; for each rank they add up to the wall time of training."""
    matrix = waits(stories)
    waited = [0.0] * len(stories) if matrix is None else matrix.sum(axis=1).tolist()
    found: dict[str, list[float]] = {name: [] for name in SHOWN_PHASES}
    for story, wait in zip(stories, waited, strict=True):
        spent: dict[str, float] = {}
        for line in story.steps:
            for name, seconds in line["seconds"].items():
                spent[name] = spent.get(name, 0.0) + seconds
        wait = min(wait, spent["communicate"])
        early = train_seconds - sum(spent.values())  # ended its epochs before the slowest rank
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
        "samples": int(sum(story.column("samples").sum() for story in stories)),
    }


def _quality(story: Story, epochs: Mapping[str, Floats]) -> dict[str, Any]:
    target = story.start["config"]["target"]
    reached = seconds_to(target, epochs["test_accuracy"], epochs["seconds"]) if target else None
    return {
        **{name: float(epochs[name][-1]) for name in ARRAYS},
        "best_test_accuracy": float(epochs["test_accuracy"].max()),
        "seconds_to_target": reached,
    }


def _costs(stories: list[Story]) -> dict[str, Any]:
    ends = [story.end for story in stories]
    return {
        "messages": ends[0]["messages"],
        "bytes_sent": ends[0]["bytes"],
        "messages_by_rank": [end["messages"] for end in ends],
        "bytes_by_rank": [end["bytes"] for end in ends],
        "peak_memory_bytes": [end["peak_memory_bytes"] for end in ends],
        "proportional_memory_bytes": [end["proportional_memory_bytes"] for end in ends],
    }


def _cooperation(stories: list[Story], samples: int) -> dict[str, Any]:
    """What the strategy counted over all ranks: updates, rounds, staleness, who was waited for."""
    accounts = [story.end.get("account", {}) for story in stories]
    steps = stories[0].end["steps"]
    updates = next((account["updates"] for account in accounts if "updates" in account), steps)
    matrix = waits(stories)
    waited_for = None if matrix is None else matrix.sum(axis=0).tolist()
    for account in accounts:
        waited_for = account.get("waited_for", waited_for)
    return {
        "updates": updates,
        "updates_per_sample": updates / samples if samples else 0.0,
        "steps_between_agreements": accounts[0].get("steps_between_agreements", {"1": steps}),
        "staleness": _added([account.get("staleness", {}) for account in accounts]),
        "overlapping_updates": sum(account.get("overlapping_updates", 0) for account in accounts),
        "dropped_gradients": sum(account.get("dropped_gradients", 0) for account in accounts),
        "waited_for_seconds": waited_for,
    }


def _added(histograms: list[dict[str, int]]) -> dict[str, int]:
    """Of all ranks together, by value."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update({int(value): count for value, count in histogram.items()})
    return {str(value): count for value, count in sorted(total.items())}


def _rank_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def _save_array(path: Path, values: Floats) -> None:
    with replacing(path) as file:
        np.save(file, values)
