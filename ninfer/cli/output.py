"""Tables and text on standard output, in full width when nobody is looking at a terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
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


@contextmanager
def progress(title: str, num_steps: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error while something long runs, if somebody is looking.

    Yields:
        To be called with the number of steps just done.
    """
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=num_steps)
        yield lambda count: bar.advance(task, count)
