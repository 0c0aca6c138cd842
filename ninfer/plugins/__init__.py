"""Finds, checks and picks plugins. Knows nothing about what they do once opened."""

from ninfer.plugins.catalog import PluginCatalog
from ninfer.plugins.opening import open_decoder, open_matcher, open_policy, open_tier
from ninfer.plugins.record import Family, PluginRecord
from ninfer.plugins.report import to_data
from ninfer.plugins.selection import Chosen, Selection, select_plugins
from ninfer.plugins.use import Use, uses_of

__all__ = [
    "Chosen",
    "Family",
    "PluginCatalog",
    "PluginRecord",
    "Selection",
    "Use",
    "open_decoder",
    "open_matcher",
    "open_policy",
    "open_tier",
    "select_plugins",
    "to_data",
    "uses_of",
]
