"""Which ranks of a parameter server train, and which of its options go together."""

from __future__ import annotations

from paceline.errors import ConfigError, one_of

MODES = ("sync", "async", "ssp")
TURNS = ("auto", "claimed", "dealt")


def trainers_of(ranks: int, servers: int) -> int:
    """How many of the ranks train."""
    if not 1 <= servers < ranks:
        raise ConfigError(
            f"parameter_server: {ranks} rank(s) with servers = {servers} leave nobody to train; "
            f"use at least {max(2, servers + 1)} ranks"
        )
    return ranks - servers


def check_mode(mode: str, turns: str, staleness: int, *, survive: bool) -> None:
    """Refuse what cannot be, in one line."""
    one_of("parameter_server: mode", mode, MODES)
    one_of("parameter_server: turns", turns, TURNS)
    if staleness < 0:
        raise ConfigError(f"parameter_server: staleness = {staleness} must be at least 0")
    if mode == "sync" and turns == "claimed":
        raise ConfigError("parameter_server: sync gives every trainer the same turns; leave out turns")
    if survive and (mode == "sync" or turns == "dealt"):
        raise ConfigError(
            "parameter_server: survive needs mode = async or ssp and claimed turns, or a lost trainer's part "
            "of the epoch would be missing"
        )
