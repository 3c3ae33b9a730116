"""All findings of a check, the causes without their consequences.

    ranks' observations ─► every judgement, in order ─► a finding that another one explains is left out

Ranks that never met explain every difference between them; gradients that are not averaged explain replicas
that drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from paceline.check.observations import Rank


@dataclass(frozen=True)
class Finding:
    """What is wrong, how it was seen, how to mend it."""

    name: str
    title: str
    evidence: str
    fix: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


_EXPLAINS = {
    "same_rank": {
        "same_samples", "never_averaged", "wrong_scale", "replicas_drift",
        "batchnorm_differs", "padded_evaluation",
    },
    "never_averaged": {"replicas_drift"},
}  # fmt: skip


def judge(ranks: Sequence[Rank]) -> list[Finding]:
    """Everything that is wrong; nothing, if there is but one rank to compare."""
    from paceline.check import cost, gradients, replicas, samples

    judgements = (
        replicas.same_rank,
        samples.same_samples,
        samples.no_reshuffle,
        gradients.never_averaged,
        gradients.wrong_scale,
        replicas.replicas_drift,
        replicas.batchnorm_differs,
        samples.padded_evaluation,
        cost.threads_fight,
        cost.one_collective_per_parameter,
    )
    found = [finding for each in judgements if (finding := each(ranks))]
    explained = {name for finding in found for name in _EXPLAINS.get(finding.name, ())}
    return [finding for finding in found if finding.name not in explained]
