"""Printing in the order of the ranks: every rank's text goes to rank 0, and rank 0 alone writes.

Waiting for one's turn and flushing is not enough: a launcher that gives every rank a pipe of its own
(mpiexec, srun, torchrun --tee) reads the pipes in any order it likes. One writer has one order. Cost: two
collectives, the second as long as the longest text in UTF-8.
"""

from __future__ import annotations

import torch

from paceline.comm.collectives import Collective


def texts(collective: Collective, text: str) -> list[str]:
    """The texts of all ranks in rank order, on every rank."""
    raw = text.encode()
    lengths = collective.all_gather(torch.tensor([len(raw)]))[:, 0].tolist()
    padded = torch.zeros(max(1, *lengths), dtype=torch.uint8)
    padded[: len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else padded[:0]
    rows = collective.all_gather(padded)
    return [bytes(row[:length].tolist()).decode() for row, length in zip(rows, lengths, strict=True)]


def print_there_and_back(collective: Collective, iterations: int) -> None:
    """Each iteration: the lines of the ranks from first to last, from last to first, then `---`."""
    for _ in range(iterations):
        lines = texts(collective, f"rank {collective.rank}")
        if collective.rank == 0:
            print("\n".join([*lines, *reversed(lines), "---"]), flush=True)
