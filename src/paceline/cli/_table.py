"""A table for people and for pipes: rich on a terminal, tab-separated lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence


def show(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A name that begins with `#` is a column of numbers, set to the right."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    names = [name.removeprefix("#") for name in columns]
    if not console.is_terminal:
        print("\n".join("\t".join(row) for row in (names, *rows)))
        return
    table = Table(title=title or None, title_justify="left", box=None, header_style="bold")
    for column, name in zip(columns, names, strict=True):
        table.add_column(name, justify="right" if column.startswith("#") else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
