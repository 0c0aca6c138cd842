"""The conformance suite of storage tiers."""

from ninfer.testing.tier.suite import StorageTierSuite

__all__ = ["StorageTierSuite"]
