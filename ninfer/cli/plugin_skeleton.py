"""`ninfer plugin new`: a package that works, with tests, for somebody who wants to write a plugin."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

import ninfer.api
from ninfer import __version__
from ninfer.api import API_VERSION, ConfigError
from ninfer.cli.exit_codes import errors_for_people
from ninfer.plugins import Family, PluginCatalog
from ninfer.plugins.results import kind_mistake

plugin_app = typer.Typer(name="plugin", help="Write a plugin.", rich_markup_mode=None)

_SUFFIX: Final = ".tmpl"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contract:
    """What differs between the four families: names of the contract, and words for people."""

    hook: str
    provider: str
    summary: str
    toml: str


_CONTRACTS: Final = {
    Family.TIER: _Contract(
        hook="ninfer_storage_tiers",
        provider="TierProvider",
        summary="Images in the memory of this process.",
        toml='[[cache.tiers]]\nname = "$kind"\nkind = "$kind"\ncapacity = "1GiB"',
    ),
    Family.MATCHER: _Contract(
        hook="ninfer_checkpoint_matchers",
        provider="MatcherProvider",
        summary="The deepest resume point of each tier.",
        toml='[cache]\nmatcher = "$kind"\n\n[cache.matcher_options]\nmax_candidates = 3',
    ),
    Family.POLICY: _Contract(
        hook="ninfer_placement_policies",
        provider="PolicyProvider",
        summary="Recency, and some seconds of it for every further use.",
        toml='[cache]\npolicy = "$kind"\n\n[cache.policy_options]\nuse_worth_s = 60',
    ),
    Family.DECODER: _Contract(
        hook="ninfer_speculative_decoders",
        provider="DecoderProvider",
        summary="Repeats what followed the same tokens before.",
        toml='[spec]\ndecoder = "$kind"\n\n[spec.options]\nngram_tokens = 3',
    ),
}


@plugin_app.callback()
def _group() -> None:
    """Keep `new` a command of its own, so that others can stand beside it."""


@plugin_app.command("new")
def new_plugin(
    family: Annotated[Family, typer.Argument(help="What the plugin is.")],
    name: Annotated[str, typer.Argument(help="Its kind, as `ninfer.toml` will name it.")],
    *,
    path: Annotated[
        Path | None, typer.Option(help="Folder to write to; it must not exist or be empty.")
    ] = None,
) -> None:
    """Write a plugin package that passes its conformance suite at once."""
    with errors_for_people():
        _check_name(family, name)
        names = _names(family, name)
        _check_class(names["cls"], names["config"])
        folder = path if path is not None else Path(names["distribution"])
        _write(folder, _rendered(family, names))
    typer.echo(f"wrote {names['distribution']} to {folder}; next:")
    typer.echo(f"  cd {folder}")
    typer.echo("  python -m pip install -e '.[testing]'")
    typer.echo("  pytest")
    typer.echo(f"  ninfer conformance {family} {name}")


def _write(folder: Path, texts: Mapping[Path, str]) -> None:
    """Write the files of a package.

    Raises:
        ConfigError: the folder is in use, or cannot be written.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder} exists and is not empty; choose another with --path")
        for relative, text in texts.items():
            target = folder / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error


def _check_class(*names: str) -> None:
    """Refuse names of classes that the contract has already.

    Raises:
        ConfigError: names the class.
    """
    for name in names:
        if name in ninfer.api.__all__:
            raise ConfigError(f"the class would be {name}, as in ninfer.api; choose another name")


def _check_name(family: Family, name: str) -> None:
    """Refuse names that could not be used.

    Raises:
        ConfigError: the name is no kind, or an installed plugin offers it.
    """
    if mistake := kind_mistake(family, name):
        raise ConfigError(f"{name!r}: {mistake}")
    if not name[-1].isalnum():
        raise ConfigError(f"{name!r}: the name of a distribution ends in a letter or a digit")
    for record in PluginCatalog.discover().records:
        if any((offer.family, offer.kind) == (family, name) for offer in record.offers):
            raise ConfigError(
                f"{family} kind {name!r} exists: plugin {record.name}, {record.origin}; choose another name"
            )


def _names(family: Family, kind: str) -> dict[str, str]:
    """Return what the templates refer to."""
    contract = _CONTRACTS[family]
    words = re.split(r"[-_]+", kind)
    title = "".join(word.capitalize() for word in words)
    module = "_".join(words)
    major, minor = __version__.split(".")[:2]
    return {
        "kind": kind,
        "family": family.value,
        "Family": family.value.capitalize(),
        "cls": f"{title}{family.value.capitalize()}",
        "config": f"{title}Config",
        "package": f"ninfer_{family}_{module}",
        "plugin": f"{family}_{module}",
        "distribution": f"ninfer-{family}-{'-'.join(words)}",
        "hook": contract.hook,
        "provider": contract.provider,
        "summary": contract.summary,
        "toml": Template(contract.toml).substitute(kind=kind),
        "api_major": str(API_VERSION[0]),
        "api_minor": str(API_VERSION[1]),
        "ninfer_range": f">={major}.{minor},<{major}.{int(minor) + 1}",
    }


def _rendered(family: Family, names: Mapping[str, str]) -> dict[Path, str]:
    """Return the text of each file of the package."""
    package, tests = Path(names["package"]), Path("tests")
    places = {
        "shared/pyproject.toml": Path("pyproject.toml"),
        "shared/README.md": Path("README.md"),
        "shared/__init__.py": package / "__init__.py",
        "shared/plugin.py": package / "plugin.py",
        "shared/test_plugin.py": tests / f"test_{names['plugin']}.py",
        f"{family}/config.py": package / "config.py",
        f"{family}/{family}.py": package / f"{family}.py",
        f"{family}/test_conformance.py": tests / "test_conformance.py",
    }
    source = files("ninfer.cli") / "skeletons"
    rendered = {
        place: Template((source / f"{name}{_SUFFIX}").read_text("utf-8")).substitute(names)
        for name, place in places.items()
    }
    return {**rendered, package / "py.typed": ""}
