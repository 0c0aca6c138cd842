"""Conformance suites for people who write plugins. Needs the extra `ninfer[testing]`; loads names when used."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ninfer.testing.base import ConformanceSuite, RequirementFailed
    from ninfer.testing.clock import FakeClock
    from ninfer.testing.decoder import SpeculativeDecoderSuite
    from ninfer.testing.faults import CrashingTier, FaultyTier, SlowTier, StorageFaults, WrappedTier
    from ninfer.testing.matcher import CheckpointMatcherSuite
    from ninfer.testing.policy import PlacementPolicySuite
    from ninfer.testing.tier import StorageTierSuite

# No name here may be that of a module of this package: importing the module would hide it.
_PLACES: Final = {
    "CheckpointMatcherSuite": "matcher",
    "ConformanceSuite": "base",
    "RequirementFailed": "base",
    "FakeClock": "clock",
    "PlacementPolicySuite": "policy",
    "SpeculativeDecoderSuite": "decoder",
    "CrashingTier": "faults",
    "FaultyTier": "faults",
    "SlowTier": "faults",
    "StorageFaults": "faults",
    "StorageTierSuite": "tier",
    "WrappedTier": "faults",
}

__all__ = [
    "CheckpointMatcherSuite",
    "ConformanceSuite",
    "CrashingTier",
    "FakeClock",
    "FaultyTier",
    "PlacementPolicySuite",
    "RequirementFailed",
    "SlowTier",
    "SpeculativeDecoderSuite",
    "StorageFaults",
    "StorageTierSuite",
    "WrappedTier",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use.

    Raises:
        AttributeError: there is no such name.
        ImportError: pytest or hypothesis is missing; the text says how to install them.
    """
    if name not in _PLACES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    try:
        module = import_module(f"{__name__}.{_PLACES[name]}")
    except ModuleNotFoundError as error:
        if error.name in {"pytest", "hypothesis"}:
            raise ImportError(
                f"{__name__} needs {error.name}: python -m pip install 'ninfer[testing]'"
            ) from error
        raise
    return vars(module)[name]
