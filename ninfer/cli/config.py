"""`ninfer config`: the settings in force, and where each comes from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ninfer.cli.exit_codes import FAILED, errors_for_people
from ninfer.cli.options import ConfigOption, SetOption
from ninfer.config import LoadedSettings, find_config, process_settings
from ninfer.config.problems import SECRET_KEYS

config_app = typer.Typer(
    name="config", help="Show settings.", no_args_is_help=True, rich_markup_mode=None
)


@config_app.command("show")
def show_settings(
    *,
    config: ConfigOption = None,
    sets: SetOption = None,
    sources: Annotated[
        bool, typer.Option("--sources", help="Say where each value comes from.")
    ] = False,
) -> None:
    """Print all settings as TOML."""
    with errors_for_people():
        loaded = process_settings(config, sets=sets or ())
        typer.echo("\n".join(settings_lines(loaded, with_sources=sources)))


@config_app.command("path")
def show_path() -> None:
    """Print the path of the settings file that is read without --config. Exit status 1 if there is none."""
    path = find_config(Path.cwd())
    if path is None:
        typer.echo(f"ninfer: there is no ninfer.toml in {Path.cwd()}; defaults are used", err=True)
        raise typer.Exit(FAILED)
    typer.echo(str(path))


def settings_lines(loaded: LoadedSettings, *, with_sources: bool) -> list[str]:
    """Return the settings as lines of TOML that `load_settings` reads back; API keys are masked.

    Args:
        loaded: settings and origins.
        with_sources: add the origin of each value as a comment.
    """
    lines: list[str] = []
    for section, values in loaded.settings.model_dump(mode="json").items():
        lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        for key, value in values.items():
            name = f"{section}.{key}"
            shown = ["***"] * len(value) if name in SECRET_KEYS else value
            comment = f"  # {loaded.source_of(name)}" if with_sources else ""
            lines.append(f"{key} = {toml_text(shown)}{comment}")
    return lines


def toml_text(value: Any) -> str:  # noqa: ANN401 - any TOML value
    """Return a value in the syntax of TOML, tables in one line."""
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{_key_text(str(key))} = {toml_text(item)}" for key, item in value.items()
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_text(item) for item in value)}]"
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int) else str(value)
    )


def _key_text(key: str) -> str:
    is_bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if is_bare else json.dumps(key, ensure_ascii=False)
