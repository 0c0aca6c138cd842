"""`ninfer serve`. Settings and plugins are checked before anything slow is imported."""

import sys
from typing import Annotated

import structlog
import typer

from ninfer.cli.exit_codes import errors_for_people
from ninfer.cli.options import ConfigOption, SetOption
from ninfer.config import process_settings
from ninfer.obs.logging import configure_logging
from ninfer.plugins import PluginCatalog, select_plugins


def serve(  # noqa: PLR0913 - one parameter per flag
    *,
    config: ConfigOption = None,
    model: Annotated[str | None, typer.Option(help="Model to serve.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    max_context: Annotated[int | None, typer.Option(help="Longest context in tokens.")] = None,
    kv_capacity: Annotated[
        str | None, typer.Option(help='KV on the device: tokens, bytes ("8GiB") or "auto".')
    ] = None,
    max_concurrency: Annotated[int | None, typer.Option(help="Requests that run at once.")] = None,
    spec: Annotated[str | None, typer.Option(help='Speculative decoder, "auto" or "off".')] = None,
    draft_tokens: Annotated[
        int | None, typer.Option(help="Tokens guessed per step at most.")
    ] = None,
    sets: SetOption = None,
) -> None:
    """Serve a model over HTTP until stopped."""
    flags = {
        "model.name": model,
        "server.host": host,
        "server.port": port,
        "model.max_context": max_context,
        "engine.kv_capacity": kv_capacity,
        "engine.max_concurrency": max_concurrency,
        "spec.decoder": spec,
        "spec.draft_tokens": draft_tokens,
    }
    with errors_for_people():
        loaded = process_settings(config, flags=flags, sets=sets or ())
        configure_logging(
            level=loaded.settings.log.level, form=loaded.settings.log.format, stream=sys.stderr
        )
        catalog = PluginCatalog.discover(loaded.settings.plugins.disabled)
        selection = select_plugins(catalog, loaded)
        for warning in selection.warnings:
            structlog.get_logger().warning("plugin_warned", message=warning)
        from ninfer.server.run import serve as run_server  # noqa: PLC0415 - imports torch

        raise typer.Exit(run_server(loaded, catalog))
