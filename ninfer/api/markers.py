"""Markers for hook specifications and implementations."""

from typing import Final

import pluggy

PROJECT: Final = "ninfer"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
