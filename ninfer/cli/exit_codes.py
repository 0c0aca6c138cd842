"""What the exit status of `ninfer` means, and errors as people see them. No traceback for what they can fix."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from ninfer.api import ConfigError, NinferError, PluginError

FAILED: Final = 1
"""Any other failure; also `ninfer plugins` when a plugin that the configuration uses is broken."""
CONFIG_ERROR: Final = 2
"""A setting or a flag is wrong."""
PLUGIN_ERROR: Final = 3
"""A plugin that the configuration uses is broken."""


def exit_code_of(error: NinferError) -> int:
    """Return the exit status for an error."""
    if isinstance(error, ConfigError):
        return CONFIG_ERROR
    return PLUGIN_ERROR if isinstance(error, PluginError) else FAILED


@contextmanager
def errors_for_people() -> Iterator[None]:
    """Turn a NinferError into its text on standard error and an exit status.

    Raises:
        typer.Exit: instead of the NinferError.
    """
    try:
        yield
    except NinferError as error:
        typer.echo(f"ninfer: {error}", err=True)
        raise typer.Exit(exit_code_of(error)) from None
