"""Configuration: typed, frozen, checked before anything starts. Imports no torch.

run.py     RunConfig: every key of a run, its default, its help, its checks
files.py   TOML in and out, `key=value` words, unknown keys with a suggestion, the configuration hash
plan.py    Plan: all that follows from a configuration, a data set's size and a machine
"""

from paceline.config.files import config_hash, merged, read_toml, to_toml
from paceline.config.plan import Plan, make_plan
from paceline.config.run import RunConfig

__all__ = ["Plan", "RunConfig", "config_hash", "make_plan", "merged", "read_toml", "to_toml"]
