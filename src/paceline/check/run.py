"""Start the ranks of a script with observers in them, read what they saw, judge it.

    script ─► p ranks, observed (_rank.py) ─► a temporary folder ─► observations ─► findings

A script that fails or hangs has still been observed up to there: its findings often say why it does.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.check.judge import Finding, judge
from paceline.check.observations import Rank, read
from paceline.errors import PacelineError, RankFailed, UsageError
from paceline.launch import local
from paceline.launch.script import Script, import_torch, run_script, serve_store


@dataclass(frozen=True)
class Checked:
    """What a check has found; `failure` is the script's own, if it did not end well."""

    findings: Sequence[Finding]
    steps: int
    ranks: int
    failure: PacelineError | None
    unseen: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        return {
            "findings": [finding.as_json() for finding in self.findings],
            "ranks": self.ranks,
            "steps": self.steps,
            "failure": str(self.failure) if self.failure else None,
            "not_seen": list(self.unseen),
        }


def check(script: Script, *, ranks: int, steps: int, threads: int, timeout: float) -> Checked:
    """Run and judge; a script that never makes a step is the user's mistake."""
    script.check()
    import_torch()
    from paceline.check._rank import observed

    failure: PacelineError | None = None
    with tempfile.TemporaryDirectory(prefix="paceline-check-") as name:
        function = functools.partial(
            run_script, script, around=functools.partial(observed, Path(name), steps)
        )
        try:
            local.start(function, ranks, threads=threads, serve=serve_store, deadline=timeout)
        except UsageError:
            raise
        except RankFailed as error:
            failure = error
        seen = read(Path(name), ranks)
    findings, made = judge(seen), min(rank.steps for rank in seen)
    if not findings and not made and failure is None:
        raise UsageError(
            f"{script.name} made no optimizer step, so there is nothing to check; give it the arguments with "
            "which it trains"
        )
    return Checked(findings, made, ranks, failure, unseen(seen))


def unseen(ranks: Sequence[Rank]) -> list[str]:
    """What could not be looked at, so that silence about it means nothing."""
    said = []
    if not all(rank.gradients for rank in ranks):
        said.append(
            "gradients: the optimizer holds other tensors than the model's parameters, or parts of them"
        )
    if not any(rank.evaluated() for rank in ranks):
        said.append("evaluation: no pass over a DataLoader with the model in eval mode")
    if not any(len(rank.trained()) > 1 for rank in ranks):
        said.append("reshuffling: fewer than two epochs were recognised")
    if any(rank.norms for rank in ranks) and all(
        when == "train" for rank in ranks for when, _, _ in rank.norms
    ):
        said.append("BatchNorm statistics: no evaluation, and the script did not reach its end")
    return said
