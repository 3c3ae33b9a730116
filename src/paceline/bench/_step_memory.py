"""What a strategy holds, in a world of its own: parameters, gradients, optimizer state, by rank and by node.

    measured    USS and PSS (/proc/self/smaps_rollup) before the model is built and after its first update
    counted     every tensor's bytes, by where the kernel says they lie (/proc/self/maps): private memory is
                the rank's own, a mapping that others share counts once a node, at its place in the file

No forward pass runs, so there are no activations: gradients are set by hand.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from paceline.bench._board import Board
from paceline.bench._step_cases import Case
from paceline.bench._step_rank import Job, make_model, make_optimizer
from paceline.comm.world import joined
from paceline.launch.environment import Place
from paceline.metrics.clock import Meter
from paceline.registry import COLLECTIVES, STRATEGIES

Lying = tuple[str, int]  # what lies there is the same memory for all ranks that name it; its bytes


def memory_rank(job: Job, case: Case, board: Board, folder: Path, place: Place) -> None:
    """Leaves what this rank holds of one strategy's replica."""
    torch.set_num_threads(1)
    board.sit(place.rank)
    with joined(place, job.deadline) as world:
        collective = COLLECTIVES.make(case.collective, world)
        collective.all_reduce_(torch.ones(1))
        _one_update(fused=case.fused)  # what the first update imports is nobody's
        gc.collect()
        board.wait()
        before = held()
        board.wait()
        model = make_model(job.model)
        optimizer = make_optimizer(model, fused=case.fused)
        strategy = STRATEGIES.make(case.strategy, world, collective, Meter(), options=case.options)
        strategy.attach(model, optimizer)
        for update in (True, False):
            for parameter in model.parameters():
                if parameter.grad is None:
                    parameter.grad = torch.ones_like(parameter)
                else:
                    parameter.grad.fill_(1.0)
            if update:
                strategy.step()
        gc.collect()
        board.wait()
        after = held()
        board.wait()
        states = [value for state in optimizer.state.values() for value in state.values()]
        found = {
            "uss": after["Uss"] - before["Uss"],
            "pss": after["Pss"] - before["Pss"],
            "parameters": _lying(model.parameters()),
            "gradients": _lying(p.grad for p in model.parameters() if p.grad is not None),
            "optimizer": _lying(s for s in states if torch.is_tensor(s)),
        }
        (folder / f"{place.rank}.json").write_text(json.dumps(found))
        board.wait()
        strategy.close()
        collective.close()


def held() -> dict[str, int]:
    """This process's memory in bytes: its own pages alone (Uss), and with its share of shared ones (Pss)."""
    kinds = {"Pss": 0, "Private_Clean": 0, "Private_Dirty": 0}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in kinds:
            kinds[name] = int(rest.split()[0]) * 1024
    return {"Pss": kinds["Pss"], "Uss": kinds["Private_Clean"] + kinds["Private_Dirty"]}


def _one_update(*, fused: bool) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = make_optimizer(model, fused=fused)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def _lying(tensors: Iterable[Tensor]) -> list[Lying]:
    """Where tensors lie; a mapping that is shared is named by its file and the place in it."""
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [([int(end, 16) for end in words[0].split("-")], words) for words in maps]
    found: list[Lying] = []
    for tensor in tensors:
        at = tensor.data_ptr()
        words, start = next((words, low) for (low, high), words in ranges if low <= at < high)
        if words[1].endswith("s"):
            name = f"{words[3]} {words[4]} {int(words[2], 16) + at - start:x}"
        else:
            name = f"process {os.getpid()} {at:x}"
        found.append((name, tensor.nbytes))
    return found
