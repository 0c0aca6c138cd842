"""Hook specifications. All of them register providers once at start; none is called while tokens are made."""

from collections.abc import Iterable
from typing import Any

from ninfer.api.markers import hookspec
from ninfer.api.providers import DecoderProvider, MatcherProvider, PolicyProvider, TierProvider


@hookspec
def ninfer_storage_tiers() -> Iterable[TierProvider[Any]]:  # type: ignore[empty-body]
    """Offer storage tiers.

    Called once per process, after plugin discovery and before settings are resolved. All results are used;
    order does not matter. Must not touch devices, files or the network.

    Returns:
        Providers. `kind` must be unique among all installed plugins.

    Added in API 1.0.
    """


@hookspec
def ninfer_checkpoint_matchers() -> Iterable[MatcherProvider[Any]]:  # type: ignore[empty-body]
    """Offer checkpoint matchers. Called as `ninfer_storage_tiers` is. Added in API 1.0."""


@hookspec
def ninfer_placement_policies() -> Iterable[PolicyProvider[Any]]:  # type: ignore[empty-body]
    """Offer placement policies. Called as `ninfer_storage_tiers` is. Added in API 1.0."""


@hookspec
def ninfer_speculative_decoders() -> Iterable[DecoderProvider[Any]]:  # type: ignore[empty-body]
    """Offer speculative decoders. Called as `ninfer_storage_tiers` is. Added in API 1.0."""
