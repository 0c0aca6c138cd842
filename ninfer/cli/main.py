"""The command `ninfer`: puts the commands together. Imports no torch; `serve` does when it starts."""

import platform
from importlib import metadata

import typer

from ninfer import __version__
from ninfer.api import API_VERSION
from ninfer.cli.cache import cache_app
from ninfer.cli.config import config_app
from ninfer.cli.conformance import conformance
from ninfer.cli.plugin_skeleton import plugin_app
from ninfer.cli.plugins import plugins_app
from ninfer.cli.serve import serve
from ninfer.cli.simulate import simulate
from ninfer.config.openmp import wait_briefly

app = typer.Typer(
    name="ninfer",
    help="LLM inference engine whose contexts, once prefilled, are never prefilled again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(serve)
app.command()(conformance)
app.command()(simulate)
app.add_typer(plugins_app)
app.add_typer(plugin_app)
app.add_typer(config_app)
app.add_typer(cache_app)


@app.command()
def version() -> None:
    """Print versions of ninfer, its plugin contract, Python and torch."""
    typer.echo(f"ninfer {__version__}")
    typer.echo(f"plugin API {API_VERSION[0]}.{API_VERSION[1]}")
    typer.echo(f"Python {platform.python_version()}")
    try:
        typer.echo(f"torch {metadata.version('torch')}")
    except metadata.PackageNotFoundError:
        typer.echo("torch is not installed")


def main() -> None:
    """Run the command line of this process and exit."""
    wait_briefly()
    app()
