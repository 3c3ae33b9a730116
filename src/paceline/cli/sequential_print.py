"""Print in a fixed order: rank 0 to rank N-1, rank N-1 to rank 0, then `---`, in each iteration.

    paceline sequential-print --ranks 3
    torchrun --nproc_per_node 3 -m paceline sequential-print

Every rank makes its own line; rank 0 receives them and writes. So the order does not depend on how a launcher
merges the outputs of its processes.
"""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from paceline.errors import ConfigError
from paceline.metrics.resources import threads_for

if TYPE_CHECKING:
    from paceline.launch.environment import Place

HELP = "every rank's line in a fixed order, there and back"
_DEADLINE = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, metavar="N", help="processes to start (default: 1)")
    parser.add_argument("--iterations", type=int, default=3, metavar="K", help="how often (default: 3)")


def run(arguments: argparse.Namespace) -> int:
    from paceline.launch import environment, local
    from paceline.launch.script import import_torch

    place = environment.current()
    if arguments.iterations < 0:
        raise ConfigError(f"--iterations {arguments.iterations} must be 0 or more")
    if place is not None:
        if arguments.ranks not in (None, place.size):
            raise ConfigError(
                f"{place.launcher} started {place.size} ranks, not {arguments.ranks}; leave out --ranks"
            )
        print_rank(arguments.iterations, place)
        return 0
    ranks = 1 if arguments.ranks is None else arguments.ranks
    import_torch()
    local.start(
        functools.partial(print_rank, arguments.iterations), ranks, threads=threads_for(max(1, ranks))
    )
    return 0


def print_rank(iterations: int, place: Place) -> None:
    """What one rank does."""
    from paceline.comm.ordered import print_there_and_back
    from paceline.comm.world import joined
    from paceline.registry import COLLECTIVES

    with joined(place, _DEADLINE) as world:
        print_there_and_back(COLLECTIVES.make("native", world), iterations)
