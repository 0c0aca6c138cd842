"""Reads settings: flags before environment before file before default. All mistakes are reported at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tomli
from pydantic import ValidationError

from ninfer.api import ConfigError
from ninfer.config.known_keys import (
    field_of,
    is_list,
    is_options,
    is_unknown,
    known_fields,
    suggestion,
)
from ninfer.config.layers import RawValue, read_environ, read_file, read_flags, read_sets
from ninfer.config.problems import describe, key_text
from ninfer.config.settings import Settings

CONFIG_FILE_NAME: Final = "ninfer.toml"
DEFAULT_SOURCE: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings and where each came from.

    Attributes:
        settings: the frozen values.
        sources: origin of every setting by its name ("model.name"), and of single options
            ("cache.policy_options.alpha"); for example "default", "ninfer.toml", "NINFER_MODEL__NAME", "--model".
        config_path: the file that was read, None if none was.
    """

    settings: Settings
    sources: Mapping[str, str]
    config_path: Path | None = None

    def source_of(self, key: str) -> str:
        """Return the origin of a setting or of something inside it ("cache.tiers[1].capacity")."""
        while key and key not in self.sources:
            cut = max(key.rfind("."), key.rfind("["))
            key = key[:cut] if cut > 0 else ""
        return self.sources.get(key, DEFAULT_SOURCE)


@dataclass(slots=True)
class _Merge:
    """Values of all layers so far, the later ones on top."""

    tree: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, raw: RawValue) -> None:
        is_section_itself = len(raw.path) == 1 and raw.path[0] in Settings.model_fields
        if is_section_itself and isinstance(raw.value, Mapping):
            return  # an empty table sets nothing
        if is_unknown(raw.path) and not is_section_itself:
            hint = suggestion(raw.path, from_environ=raw.source.startswith("NINFER_"))
            self.problems.append(f"{raw.source}: unknown setting {'.'.join(raw.path)}{hint}")
            return
        try:
            value = _interpret(raw)
        except ValueError as error:
            self.problems.append(f"{raw.source}: {'.'.join(raw.path)}: {error}")
            return
        table = self.tree
        for key in raw.path[:-1]:
            below = table.setdefault(key, {})
            if not isinstance(below, dict):
                return  # the value in the way is wrong by itself and reported as such
            table = below
        table[raw.path[-1]] = value
        self.sources[".".join(raw.path)] = raw.source


def find_config(folder: Path) -> Path | None:
    """Return `ninfer.toml` of a folder, None if it has none."""
    path = folder / CONFIG_FILE_NAME
    return path if path.is_file() else None


def load_settings(
    config_path: Path | None = None,
    *,
    flags: Mapping[str, object] | None = None,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Read all settings. Flags win over environment, environment over file, file over defaults.

    Args:
        config_path: a file that must exist; None reads no file. `find_config` looks for one.
        flags: values by setting, for example {"model.name": "smollm2"}; None as a value means not given.
        sets: items "section.key=value"; they win over `flags`.
        environ: environment variables; None means none. Every `NINFER_*` variable in it must be a setting.

    Returns:
        Frozen settings and the origin of each.

    Raises:
        ConfigError: with every mistake that was found, one line each.
    """
    merge = _Merge()
    raws: list[RawValue] = []
    try:
        raws += read_file(config_path) if config_path is not None else []
    except ValueError as error:
        merge.problems.append(str(error))
    raws += read_environ(environ or {})
    raws += read_flags(flags or {})
    try:
        raws += read_sets(sets)
    except ValueError as error:
        merge.problems.append(str(error))
    for raw in raws:
        merge.add(raw)
    settings = _validate(merge)
    sources = {key_text(path): DEFAULT_SOURCE for path, _ in known_fields()} | merge.sources
    return LoadedSettings(
        settings=settings, sources=MappingProxyType(sources), config_path=config_path
    )


def _validate(merge: _Merge) -> Settings:
    try:
        settings = Settings(**merge.tree)
    except ValidationError as error:
        merge.problems += describe(error, merge.tree, merge.sources)
    else:
        if not merge.problems:
            return settings
    count = len(merge.problems)
    head = "1 setting is wrong" if count == 1 else f"{count} settings are wrong"
    raise ConfigError("\n  ".join([head, *merge.problems]))


def _interpret(raw: RawValue) -> Any:  # noqa: ANN401 - any setting
    """Turn text into lists and options where the setting wants them; numbers are left to the models.

    Raises:
        ValueError: text that should be TOML is not.
    """
    setting = field_of(raw.path)
    if not raw.is_text or setting is None:
        return raw.value
    text: str = raw.value
    if is_options(setting):
        return _toml_value(text, is_lenient=len(raw.path) > 2)
    if is_list(setting):
        if text.lstrip().startswith("["):
            return _toml_value(text, is_lenient=False)
        return [part.strip() for part in text.split(",")] if text.strip() else []
    return text


def _toml_value(text: str, *, is_lenient: bool) -> Any:  # noqa: ANN401 - any TOML value
    try:
        return tomli.loads(f"value = {text}")["value"]
    except tomli.TOMLDecodeError:
        if is_lenient:
            return text
        raise ValueError(f"{text!r} is not a TOML value") from None
