"""Which suite tests which kind of plugin. Loads a suite when it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final, cast

from ninfer.testing.base import ConformanceSuite

SUITES: Final[Mapping[str, str]] = MappingProxyType({
    "tier": "ninfer.testing.tier:StorageTierSuite",
    "matcher": "ninfer.testing.matcher:CheckpointMatcherSuite",
    "policy": "ninfer.testing.policy:PlacementPolicySuite",
    "decoder": "ninfer.testing.decoder:SpeculativeDecoderSuite",
})
"""Kind -> module and class of its suite. A class here must declare the same `kind`; a test holds it."""


def suite_of(kind: str) -> type[ConformanceSuite]:
    """Return the suite of a kind of plugin.

    Args:
        kind: a key of `SUITES`.
    """
    module, _, name = SUITES[kind].partition(":")
    return cast("type[ConformanceSuite]", vars(import_module(module))[name])
