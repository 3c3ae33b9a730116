"""What do these times say? Speed-up, efficiency, the law that fits, and what is wrong with the comparison.

Times are RANKS=SECONDS, repeats joined with commas; options that take RANKS=… come after the times:

    paceline laws 1=303.76 2=257.54 3=236.52
    paceline laws 1=10.1,10.3,9.9 2=5.6,5.4,5.7 --scaling strong --cores 2 --accuracy 1=98.5 2=98.6
    paceline laws --change 9238.13 9353.68
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paceline.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.study.laws import Analysis, Change

HELP = "speed-up, efficiency, scaling laws and warnings for times you have measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "times",
        nargs="*",
        metavar="RANKS=SECONDS",
        help="a time, or the times of several repeats: 2=257.5,261",
    )
    add("--scaling", choices=("strong", "weak"), help="global batch fixed, or batch of a rank fixed")
    add("--cores", type=int, metavar="N", help="usable cores of all nodes")
    add("--accuracy", nargs="+", default=[], metavar="RANKS=A", help="test accuracy, fractions or per cent")
    add("--updates", nargs="+", default=[], metavar="RANKS=N", help="optimizer updates in the run")
    add("--batches", nargs="+", default=[], metavar="RANKS=N", help="samples a rank and update")
    add("--threads", nargs="+", default=[], metavar="RANKS=N", help="compute threads in each rank")
    add("--predict", type=int, metavar="RANKS", help="speed-up by the law that applies, up to twice the data")
    add("--change", nargs=2, metavar=("WITHOUT", "WITH"), help="relative change between two times")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from paceline.study.laws import analyse, change

    if not arguments.times and not arguments.change:
        raise ConfigError("no times: give RANKS=SECONDS such as 1=303.76 2=257.54, or --change WITHOUT WITH")
    analysis, changed = None, None
    if arguments.times:
        analysis = analyse(
            _by_ranks("time", arguments.times),
            scaling=arguments.scaling,
            cores=arguments.cores,
            accuracy=_by_ranks("--accuracy", arguments.accuracy),
            updates=_by_ranks("--updates", arguments.updates),
            batches=_by_ranks("--batches", arguments.batches),
            threads=_by_ranks("--threads", arguments.threads),
        )
    elif arguments.predict is not None:
        raise ConfigError("--predict needs times: give RANKS=SECONDS such as 1=303.76 2=257.54 3=236.52")
    if arguments.change:
        changed = change(*(_numbers("--change", word) for word in arguments.change))
    result = _result(analysis, changed, arguments.predict)
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        _show(analysis, changed, result)
    return 0


def _result(analysis: Analysis | None, changed: Change | None, ranks: int | None) -> dict[str, Any]:
    """The JSON object; a prediction that is refused is None, and its reason is among the refusals."""
    result: dict[str, Any] = analysis.as_json() if analysis else {}
    if changed:
        result["change"] = changed.as_json()
    if analysis and ranks is not None:
        try:
            speedup, interval = analysis.predict(ranks)
            found = {"ranks": ranks, "law": analysis.law, "speedup": speedup, "interval": interval}
            result["prediction"] = found
        except ConfigError as refusal:
            result["prediction"] = None
            result["refusals"].append(str(refusal))
    return result


def _by_ranks(what: str, words: Sequence[str]) -> dict[int, list[float]]:
    """`1=303.76 2=257.54,261` as numbers."""
    found: dict[int, list[float]] = {}
    for word in words:
        ranks, equals, numbers = word.partition("=")
        if not equals or not ranks.isdecimal():
            raise ConfigError(f"{what} {word!r}: give RANKS=NUMBER, such as 2=257.54 or 2=257.54,261.3")
        if int(ranks) in found:
            raise ConfigError(f"{what} {word!r}: {ranks} came before; join repeats with commas, 2=257,261")
        found[int(ranks)] = _numbers(what, numbers, said=word)
    return found


def _numbers(what: str, text: str, said: str = "") -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"{what} {said or text!r}: {text!r} is not a number (nor several, 9.8,10.1)"
        ) from error


def _show(analysis: Analysis | None, changed: Change | None, result: dict[str, Any]) -> None:
    """For people: a table and sentences; without colour and line breaks of its own where it is piped."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if analysis:
        _show_analysis(console, analysis, result)
    if changed:
        around = result["change"]["percent_interval"]
        spread = f" ({around[0]:+.2f} to {around[1]:+.2f} %)" if around else ""
        console.print(
            f"change      {100 * changed.relative:+.2f} %{spread}: {changed.without:g} → {changed.with_:g}"
        )


def _show_analysis(console: Console, analysis: Analysis, result: dict[str, Any]) -> None:
    _show_table(console, analysis)
    console.print()
    for name, fit in analysis.fits.items():
        parameters = [
            f"{key} = {value:.3g} ({fit.intervals[key][0]:.3g} to {fit.intervals[key][1]:.3g})"
            for key, value in fit.parameters.items()
        ]
        console.print(f"{name:<12}{', '.join(parameters)}; error of the times {100 * fit.rmse:.1f} %")
    if prediction := result.get("prediction"):
        low, high = prediction["interval"]
        said = f"{prediction['speedup']:.2f} times ({low:.2f} to {high:.2f}) by {prediction['law']}"
        console.print(f"{'predicted':<12}{prediction['ranks']} ranks: {said}")
    console.print(f"{'verdict':<12}{analysis.verdict}", style="bold")
    for warning in analysis.warnings:
        console.print(f"{'warning':<12}{warning}", style="yellow")
    for refusal in result["refusals"]:
        console.print(f"{'refused':<12}{refusal}", style="dim")


def _show_table(console: Console, analysis: Analysis) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("ranks", "speed-up", "95 % interval", "efficiency", "serial fraction"):
        table.add_column(heading, justify="right")
    for p, speedup in analysis.speedup.items():
        interval = analysis.speedup_interval.get(p)
        serial = analysis.serial_fraction.get(p)
        table.add_row(
            str(p),
            f"{speedup:.2f}",
            f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else "",
            f"{analysis.efficiency[p]:.2f}",
            f"{serial:z.2f}" if serial is not None else "",
        )
    console.print(table)
