"""Layers of raw settings: file, environment, command line. Knows nothing about which settings exist."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomli

ENV_PREFIX: Final = "NINFER_"
ENV_SEPARATOR: Final = "__"

FLAG_SETTINGS: Final[Mapping[str, str]] = {
    "--model": "model.name",
    "--max-context": "model.max_context",
    "--kv-capacity": "engine.kv_capacity",
    "--max-concurrency": "engine.max_concurrency",
    "--spec": "spec.decoder",
    "--draft-tokens": "spec.draft_tokens",
    "--host": "server.host",
    "--port": "server.port",
}
"""Command line flags that set one setting each; every other setting has `--set`."""

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawValue:
    """One value as somebody wrote it.

    Attributes:
        path: section, key and, in tables of options, deeper keys.
        value: what was written; text from the environment and from `--set` is not interpreted yet.
        source: for people, for example "ninfer.toml" or "NINFER_MODEL__NAME".
        is_text: True if `value` came as text although it may mean something else.
    """

    path: KeyPath
    value: Any
    source: str
    is_text: bool = False


def read_file(path: Path) -> list[RawValue]:
    """Read a TOML file into values.

    Raises:
        ValueError: the file is missing, unreadable or not TOML; the text names it.
    """
    try:
        table = tomli.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is not TOML: {error}") from None
    return [
        RawValue(path=keys, value=value, source=str(path)) for keys, value in _leaves(table, ())
    ]


def read_environ(environ: Mapping[str, str]) -> list[RawValue]:
    """Read variables `NINFER_SECTION__KEY`. Others that begin with `NINFER_` are kept, to be refused later."""
    return [
        RawValue(
            path=tuple(name.removeprefix(ENV_PREFIX).lower().split(ENV_SEPARATOR)),
            value=value,
            source=name,
            is_text=True,
        )
        for name, value in sorted(environ.items())
        if name.startswith(ENV_PREFIX)
    ]


def read_sets(sets: Sequence[str]) -> list[RawValue]:
    """Read `section.key=value` of `--set`.

    Raises:
        ValueError: an item has no "=" or no dot before it.
    """
    values = []
    for item in sets:
        key, equals, text = item.partition("=")
        path = tuple(part.strip() for part in key.split("."))
        if not equals or len(path) < 2 or not all(path):
            raise ValueError(f"--set {item}: write --set section.key=value")
        values.append(
            RawValue(path=path, value=text.strip(), source=f"--set {key.strip()}", is_text=True)
        )
    return values


def read_flags(flags: Mapping[str, object]) -> list[RawValue]:
    """Turn flags, keyed by the setting they set ("model.name"), into values. None means not given."""
    names = {setting: flag for flag, setting in FLAG_SETTINGS.items()}
    return [
        RawValue(
            path=tuple(setting.split(".")), value=value, source=names.get(setting, "command line")
        )
        for setting, value in flags.items()
        if value is not None
    ]


def _leaves(table: Mapping[str, Any], above: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in table.items():
        path = (*above, key)
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path)
        else:
            yield path, value
