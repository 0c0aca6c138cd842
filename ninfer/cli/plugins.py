"""`ninfer plugins`: what is installed, what is used, what is broken and why."""

import json
from typing import Annotated, Any

import typer

from ninfer.api import PluginError
from ninfer.cli.exit_codes import FAILED, errors_for_people
from ninfer.cli.option_table import OPTION_HEADERS, option_rows
from ninfer.cli.options import ConfigOption, SetOption
from ninfer.cli.output import print_table
from ninfer.cli.running_server import fetch_plugins
from ninfer.config import LoadedSettings, process_settings
from ninfer.plugins import (
    Family,
    PluginCatalog,
    PluginRecord,
    Use,
    select_plugins,
    to_data,
    uses_of,
)
from ninfer.plugins.record import PluginState
from ninfer.plugins.report import HEADERS, problem_lines, rows, rows_of_data, state_of

plugins_app = typer.Typer(name="plugins", help="List installed plugins.", rich_markup_mode=None)


@plugins_app.callback(invoke_without_command=True)
def list_plugins(  # noqa: PLR0913 - one parameter per flag
    context: typer.Context,
    *,
    config: ConfigOption = None,
    sets: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    kind: Annotated[Family | None, typer.Option(help="Only plugins that offer such kinds.")] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also plugins that are disabled.")
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Plugins of a running server, and which of them fail."),
    ] = None,
    api_key: Annotated[str, typer.Option(help="Key of that server.")] = "",
) -> None:
    """List installed plugins.

    Exit status 1 if the configuration uses one that is broken, 2 if only its settings are wrong.
    """
    if context.invoked_subcommand is not None:
        return
    with errors_for_people():
        if server is not None:
            _list_of_server(fetch_plugins(server, api_key), as_json=as_json)
            return
        loaded = process_settings(config, sets=sets or ())
        catalog = PluginCatalog.discover(loaded.settings.plugins.disabled)
        uses = uses_of(loaded)
        records = [
            record for record in catalog.records if _is_wanted(record, kind, show_all=show_all)
        ]
        if as_json:
            typer.echo(json.dumps(to_data(records, uses), indent=2))
        else:
            print_table(HEADERS, rows(records, uses))
        _check_selection(catalog, loaded)


def _list_of_server(plugins: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print what a server says about its plugins; exit status 1 if one that it uses fails."""
    if as_json:
        typer.echo(json.dumps(plugins, indent=2))
    else:
        print_table(HEADERS, rows_of_data(plugins))
    failures = [failure for plugin in plugins for failure in plugin["failures"]]
    for failure in failures:
        typer.echo(f"ninfer: {failure}", err=True)
    if failures:
        raise typer.Exit(FAILED)


def _check_selection(catalog: PluginCatalog, loaded: LoadedSettings) -> None:
    """Say what would stop `ninfer serve`, in one report on standard error."""
    try:
        select_plugins(catalog, loaded)
    except PluginError as error:
        typer.echo(f"ninfer: {error}", err=True)
        raise typer.Exit(FAILED) from None


@plugins_app.command("show")
def show_plugin(
    name: Annotated[str, typer.Argument(help="Name of the plugin, as `ninfer plugins` lists it.")],
    *,
    config: ConfigOption = None,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where it failed.")] = False,
) -> None:
    """Show one plugin: what it offers, with every option, and what is wrong with it."""
    with errors_for_people():
        loaded = process_settings(config)
        catalog = PluginCatalog.discover(loaded.settings.plugins.disabled)
        records = catalog.named(name)
        if not records:
            installed = ", ".join(record.name for record in catalog.records) or "none"
            typer.echo(f"ninfer: there is no plugin {name!r}; installed: {installed}", err=True)
            raise typer.Exit(FAILED)
        for record in records:
            _show(record, uses_of(loaded), with_traceback=traceback)


def _is_wanted(record: PluginRecord, family: Family | None, *, show_all: bool) -> bool:
    if record.state is PluginState.DISABLED and not show_all:
        return False
    return (
        family is None or record.is_broken or any(offer.family is family for offer in record.offers)
    )


def _show(record: PluginRecord, uses: tuple[Use, ...], *, with_traceback: bool) -> None:
    typer.echo(f"{record.name}   {record.origin}   (ninfer: {record.name} = {record.entry_point})")
    typer.echo(
        f"  state {state_of(record, uses)}"
        + (f", API {record.api[0]}.{record.api[1]}" if record.api else "")
    )
    for problem in record.problems:
        typer.echo("\n".join(problem_lines(problem)))
        if with_traceback and problem.traceback:
            typer.echo(problem.traceback)
    for offer in record.offers:
        typer.echo(f"\n{offer.label}: {offer.provider.summary}")
        for use in uses:
            if use.is_of(offer):
                typer.echo(f"  used by {use.where}")
        print_table(OPTION_HEADERS, option_rows(offer.provider.config))
