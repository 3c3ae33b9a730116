"""What parameter_server can be asked for, and what does not go together; each refusal is one line."""

from __future__ import annotations

from paceline.errors import ConfigError, one_of
from paceline.strategies._momentum import MOMENTA

MODES = ("sync", "async", "ssp")
TURNS = ("auto", "claimed", "dealt")


def check_choices(mode: str, momentum: str, turns: str, *, survive: bool) -> None:
    """Words, and pairs of them."""
    one_of("parameter_server: mode", mode, MODES)
    one_of("parameter_server: momentum", momentum, MOMENTA)
    one_of("parameter_server: turns", turns, TURNS)
    if mode == "sync" and turns == "claimed":
        raise ConfigError("parameter_server: sync gives every trainer the same turns; leave out turns")
    if survive and (mode == "sync" or turns == "dealt"):
        raise ConfigError(
            "parameter_server: survive needs mode = async or ssp and claimed turns, or a lost trainer's "
            "part of the epoch would be missing"
        )


def check_numbers(staleness: int, backup: int, trainers: int) -> None:
    """Of steps ahead, and of gradients left out of a round."""
    if not 0 <= backup < trainers:
        raise ConfigError(f"parameter_server: backup = {backup} must be 0 to {trainers - 1}")
    if staleness < 0:
        raise ConfigError(f"parameter_server: staleness = {staleness} must be at least 0")


def trainers_of(ranks: int, servers: int) -> int:
    """How many of the ranks train."""
    if not 1 <= servers < ranks:
        raise ConfigError(
            f"parameter_server: {ranks} rank(s) with servers = {servers} leave nobody to train; "
            f"use at least {max(2, servers + 1)} ranks"
        )
    return ranks - servers
