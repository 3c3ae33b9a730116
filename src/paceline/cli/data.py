"""The data sets: which there are, fetching, checking and preparing them.

    paceline data list                     every set, and whether its files are here
    paceline data fetch mnist svhn         download from public mirrors into the cache (or --to DIR)
    paceline data check mnist              compare every file with its published md5
    paceline data prepare mnist            read, check, write the mapped cache (training does it itself)

Files are looked for in --data-root, then in PACELINE_DATA, then in the cache folder (PACELINE_CACHE, else
~/.cache/paceline), each time first in a subfolder of the set's name.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from paceline.cli import Action
from paceline.cli._table import show
from paceline.errors import ConfigError, DataError
from paceline.registry import DATA_SETS

if TYPE_CHECKING:
    from paceline.data.definition import DataSet

HELP = "list, fetch, check and prepare data sets"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Action)

    def action(name: str, help: str, *, root: bool = True, names: bool = True) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=help, description=help)
        if names:
            added.add_argument("names", nargs="+", metavar="NAME", help=", ".join(DATA_SETS.names()))
        if root:
            added.add_argument("--data-root", metavar="DIR", help="where to look first")
        return added

    action("list", "every set, and whether its files are here", names=False)
    fetch = action("fetch", "download from the public mirrors", root=False)
    fetch.add_argument("--to", metavar="DIR", help="download into DIR/NAME (default: the cache folder)")
    action("check", "compare every file with its published md5")
    prepare = action("prepare", "read, check and write the memory-mapped cache")
    prepare.add_argument(
        "--allow-unverified", action="store_true", help="accept files that fit but are not official"
    )
    prepare.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="such as shape=3x32x32 (may be repeated)",
    )


def run(arguments: argparse.Namespace) -> int:
    for name in getattr(arguments, "names", ()):
        DATA_SETS.check(name)
    return {"list": _list, "fetch": _fetch, "check": _check, "prepare": _prepare}[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from paceline.data.sources import check_root

    check_root(arguments.data_root)
    rows = [_row(name, arguments.data_root) for name in DATA_SETS.names()]
    show(("name", "shape", "classes", "train", "test", "state", "files"), rows)
    return 0


def _row(name: str, root: str | None) -> tuple[str, ...]:
    data_set: DataSet = DATA_SETS.make(name)
    sizes = (f"{size:,}" if size is not None else "any" for size in (data_set.train_size, data_set.test_size))
    shape = "×".join(map(str, data_set.shape))
    return (name, shape, str(data_set.classes), *sizes, *_state(name, data_set, root))


def _state(name: str, data_set: DataSet, root: str | None) -> tuple[str, str]:
    """Verified or not, as far as is known without reading the files, and where they are or what to do."""
    from paceline.data.cache import cached
    from paceline.data.sources import locate

    try:
        sources = locate(name, data_set, root)
    except DataError:
        return "missing", f"paceline data fetch {name}"
    if data_set.embedded is not None:
        return "embedded", "in the package"
    if not sources:
        return "made", "from a seed"
    prepared = cached(name, data_set, sources)
    state = "unchecked" if prepared is None else "verified" if prepared.verified else "unverified"
    return state, str(sources[0].path.parent)


def _fetch(arguments: argparse.Namespace) -> int:
    from paceline.data.fetch import fetch

    for name in arguments.names:
        paths = fetch(name, arguments.to)
        for path in paths:
            print(f"{name}: {path}")
        if not paths:
            print(f"{name}: nothing to fetch")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from paceline.data.sources import locate, verify

    wrong = []
    for name in arguments.names:
        sources = locate(name, DATA_SETS.make(name), arguments.data_root)
        if not sources:
            print(f"{name}: made from a seed, no files")
        for verdict in verify(sources):
            print(f"{name}: {'ok   ' if verdict.official else 'WRONG'} {verdict.source.path}")
            if not verdict.official:
                wrong.append(f"{name}: {verdict}")
    if wrong:
        raise DataError("; ".join(wrong))
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    from paceline.data.cache import prepare

    options = dict(_option(word) for word in arguments.option)
    for name in arguments.names:
        prepared = prepare(name, arguments.data_root, arguments.allow_unverified, options)
        sizes = (
            f"{prepared.train_size:,} train, {prepared.test_size:,} test, {prepared.data_bytes / 1e6:.1f} MB"
        )
        print(f"{name}: {sizes}, in {prepared.folder}")
        if prepared.notice:
            print(f"paceline: warning: {name}: {prepared.notice}", file=sys.stderr)
    return 0


def _option(word: str) -> tuple[str, object]:
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise ConfigError(f"--option is KEY=VALUE, got {word!r}")
    if value in ("true", "false"):
        return key, value == "true"
    return key, int(value) if value.lstrip("-").isdecimal() else value
