"""Reads settings for this process: its folder and its environment. Nothing else in ninfer reads either."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ninfer.config.loading import LoadedSettings, find_config, load_settings


def process_settings(
    config_path: Path | None = None,
    *,
    flags: Mapping[str, object] | None = None,
    sets: Sequence[str] = (),
) -> LoadedSettings:
    """Read settings as the command line does: without a path, from `ninfer.toml` of the current folder if it exists.

    Args:
        config_path: a file that must exist, or None.
        flags: as in `load_settings`.
        sets: as in `load_settings`.

    Raises:
        ConfigError: as in `load_settings`.
    """
    path = config_path if config_path is not None else find_config(Path())
    return load_settings(path, flags=flags, sets=sets, environ=os.environ)
