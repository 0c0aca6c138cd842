"""Tables and text on standard output, in full width when nobody is looking at a terminal."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

_WIDE: Final = 10_000
"""Columns of a table that goes into a file or a pipe, so that lines are never cut."""


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print left-aligned columns without lines around them."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=_WIDE)
    console.print(table)
