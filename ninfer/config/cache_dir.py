"""Where files of ninfer live when nothing else is said. Knows nothing about what is kept there."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def user_cache_dir(environ: Mapping[str, str], *, platform: str) -> Path:
    """Return the folder for caches of the current user, by the custom of the platform.

    Args:
        environ: environment variables.
        platform: as `sys.platform`.

    Returns:
        An absolute path that ends in `ninfer`; nothing is created.
    """
    if platform == "win32":
        base = environ.get("LOCALAPPDATA", "")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "ninfer" / "Cache"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ninfer"
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification says that relative paths are to be ignored.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "ninfer"


def parse_cache_dir(value: object) -> Path:
    """Read `cache.dir`: "auto", or a path in which "~" is the home folder.

    Returns:
        An absolute path; nothing is created.

    Raises:
        ValueError: not text, or empty.
    """
    if value == "auto":
        return user_cache_dir(os.environ, platform=sys.platform)
    if not isinstance(value, str | Path) or not str(value).strip():
        msg = 'must be "auto" or the path of a folder'
        raise ValueError(msg)
    return Path(value).expanduser().absolute()
