"""What comparing the ranks' calls costs a call, over every collective that does not compare them by itself.

    plain     all_reduce_ of 1,000 float32, as it is
    checked   the same, compared before (the first calls of a group, or PACELINE_CHECK=1)
    later     the same decorator after its first calls

All three over one collective in the same ranks, in turns; the slowest rank counts.

    python benchmarks/checks.py [--ranks 2,4] [--rounds 25] [--json benchmarks/results/checks.json]
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from pathlib import Path

import torch

from paceline import atomic
from paceline.comm.checked import Checked, State
from paceline.comm.collectives import Collective
from paceline.comm.world import joined
from paceline.launch import local
from paceline.metrics import measure, resources
from paceline.registry import COLLECTIVES

CALLS = 20  # a round


def round_of(collective: Collective):
    flat = torch.ones(1000)

    def round_() -> None:
        for _ in range(CALLS):
            collective.all_reduce_(flat, "avg")

    return round_


def rank(names: list[str], rounds: int, folder: str, place) -> None:
    torch.set_num_threads(1)
    found = {}
    with joined(place, 60) as world:
        for name in names:
            plain = COLLECTIVES.make(name, world)
            cases = {
                "plain": round_of(plain),
                "checked": round_of(Checked(plain, world.device, State(2**62))),
                "later": round_of(Checked(plain, world.device, State(0))),
            }
            found[name] = measure.interleave(cases, rounds, before=lambda: world.group.barrier().wait())
            plain.close()
    Path(folder, f"{place.rank}.json").write_text(json.dumps(found))


def measured(ranks: int, names: list[str], rounds: int) -> list[dict]:
    """A row a collective: microseconds a call, and what the others cost more than plain in the same round."""
    with tempfile.TemporaryDirectory() as folder:
        local.start(functools.partial(rank, names, rounds, folder), ranks, threads=1, deadline=1800)
        found = [json.loads(Path(folder, f"{r}.json").read_text()) for r in range(ranks)]
    rows = []
    for name in names:
        us = {
            case: [1e6 * max(one[name][case][i] for one in found) / CALLS for i in range(rounds)]
            for case in ("plain", "checked", "later")
        }
        row = {"ranks": ranks, "collective": name, "plain_us": measure.median_interval(us["plain"]).as_json()}
        for case in ("checked", "later"):
            more = [a - b for a, b in zip(us[case], us["plain"], strict=True)]
            row[f"{case}_costs_us"] = measure.median_interval(more).as_json()
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [name for name in COLLECTIVES.names() if not COLLECTIVES.load(name).compares_calls]
    rows = []
    for ranks in map(int, options.ranks.split(",")):
        rows += measured(ranks, names, options.rounds)
    for row in rows:
        more = row["checked_costs_us"]
        print(
            f"{row['ranks']} ranks {row['collective']:17} plain {row['plain_us']['median']:8.0f} us, checked "
            f"{more['median']:+8.0f} us [{more['low']:.0f}, {more['high']:.0f}], "
            f"later {row['later_costs_us']['median']:+.0f} us "
            f"[{row['later_costs_us']['low']:.0f}, {row['later_costs_us']['high']:.0f}]"
        )
    if options.json:
        result = {"machine": resources.machine(), "commit": resources.commit(), "rows": rows}
        atomic.write_text(options.json, json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
