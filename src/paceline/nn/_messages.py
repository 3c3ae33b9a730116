"""Messages: sums one flat tensor over whatever the ranks have to talk with.

    a collective of ours     as it is
    a torch process group    dist.all_reduce over it
    None                     torch's default group, looked up at each call; nobody, where there is none

The buffer is kept and reused: a message is read before the next one is written. A copy of a module talks
with the same ranks through a buffer of its own; a pickled one with the default group, because processes
cannot be kept in a file.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.comm.collectives import Collective
from paceline.errors import ConfigError

Group = Collective | dist.ProcessGroup | None


class Messages:
    """What one layer sends, one message at a time."""

    def __init__(self, group: Group = None) -> None:
        if not (group is None or isinstance(group, Collective | dist.ProcessGroup)):
            raise ConfigError(
                f"process_group is {type(group).__name__}; give a torch process group, a collective of "
                "paceline, or None for torch's default group"
            )
        self.group: Group = group
        self._buffer: Tensor | None = None

    def anybody(self) -> bool:
        """Is there a group to talk with (perhaps of one rank)?"""
        return self.group is not None or (dist.is_available() and dist.is_initialized())

    def buffer(self, length: int, device: torch.device) -> Tensor:
        """Float64, in the memory that the collective is fastest on; all ranks ask at the same call."""
        kept = self._buffer
        if kept is None or kept.numel() != length or kept.device != device:
            if isinstance(self.group, Collective):
                kept = self.group.allocate(length, torch.float64, device)
            else:
                kept = torch.zeros(length, dtype=torch.float64, device=device)
            self._buffer = kept
        return kept

    def sum_(self, flat: Tensor) -> None:
        """The one collective: over all ranks, in place."""
        if isinstance(self.group, Collective):
            self.group.all_reduce_(flat)
        else:
            dist.all_reduce(flat, group=self.group)

    def __deepcopy__(self, memo: dict[int, Any]) -> Messages:
        return Messages(self.group)

    def __reduce__(self) -> tuple[type[Messages], tuple[()]]:
        return Messages, ()
