"""torch_p2p: torch's send and recv, on the world's own process group (gloo: TCP, also within a node).

    exchange     recv posted ─ send posted ─ both under way ─ wait for both
    a tag        every link of a world has one of its own, so two of them never mix their messages

Cost of a message: about 50 µs between two free cores, most of it a thread of gloo's that has to wake up.
The receiver's memory is posted first because gloo sends only what the other side has room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from torch import Tensor

from paceline.comm.links._base import Message
from paceline.comm.world import World
from paceline.errors import ConfigError, RankFailed


class TorchP2p:
    """CPU tensors between the ranks of any world that has a process group."""

    def __init__(self, world: World) -> None:
        if world.device.type != "cpu":
            raise ConfigError(f"link 'torch_p2p' moves CPU tensors, not {world.device.type}; choose native")
        self.rank = world.rank
        self.size = world.size
        self._group = world.group
        self._deadline = world.deadline
        self._tag = int(world.store.add(f"torch_p2p/{world.rank}", 1))  # the same on all ranks

    def send(self, x: Tensor, dst: int) -> None:
        self.exchange_all([(x, dst)], [])

    def recv(self, out: Tensor, src: int) -> None:
        self.exchange_all([], [(out, src)])

    def exchange(self, x: Tensor, dst: int, out: Tensor, src: int) -> None:
        self.exchange_all([(x, dst)], [(out, src)])

    def exchange_all(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        other = self.rank
        try:
            posted: list[tuple[Any, int]] = []
            for out, other in receives:
                if out.numel():
                    posted.append((self._group.recv([out], other, self._tag), other))
            for x, other in sends:
                if x.numel():
                    posted.append((self._group.send([x], other, self._tag), other))
            for work, rank in posted:
                other = rank
                work.wait()
        except RuntimeError as error:
            self._fail(other, error)

    def close(self) -> None:
        """The process group is the world's."""

    def _fail(self, other: int, error: RuntimeError) -> NoReturn:
        if "timed out" in str(error).lower():
            reason = f"exchanged nothing with rank {self.rank} within {self._deadline:g} s"
        else:
            reason = f"ended, or closed its connection, while rank {self.rank} waited for it"
        raise RankFailed(other, reason, str(error)) from error
