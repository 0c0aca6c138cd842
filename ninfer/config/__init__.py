"""Settings of ninfer: read once, frozen, and each with its origin. Knows nothing about what uses them."""

from ninfer.config.loading import LoadedSettings, find_config, load_settings
from ninfer.config.process import process_settings
from ninfer.config.sections import (
    CacheSection,
    EngineSection,
    LogSection,
    ModelSection,
    PluginsSection,
    ServerSection,
    SpecSection,
)
from ninfer.config.settings import Settings
from ninfer.config.tiers import TierEntry

__all__ = [
    "CacheSection",
    "EngineSection",
    "LoadedSettings",
    "LogSection",
    "ModelSection",
    "PluginsSection",
    "ServerSection",
    "Settings",
    "SpecSection",
    "TierEntry",
    "find_config",
    "load_settings",
    "process_settings",
]
