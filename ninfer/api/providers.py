"""What plugins return from hooks: providers that name, configure and open an implementation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from ninfer.api.archive import TierArchive
from ninfer.api.checkpoint import CheckpointMatcher, MatcherContext
from ninfer.api.placement import PlacementPolicy, PolicyContext
from ninfer.api.speculation import DecoderContext, SpeculativeDecoder
from ninfer.api.tier import StorageTier, TierContext


class PluginConfig(BaseModel):
    """Base of configuration models of plugins: frozen, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


C = TypeVar("C", bound=PluginConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierProvider(Generic[C]):
    """Offers a kind of storage tier.

    Attributes:
        kind: the name used in `ninfer.toml`; unique among all installed plugins.
        summary: one sentence for people.
        config: configuration model.
        open: opens one instance; raises NinferError with a clear text if it cannot.
        sample_config: a small configuration that works below a given empty folder.
        open_archive: opens everything that tiers of this kind keep at a path, for `ninfer cache`; raises
            NinferError if nothing of the kind is there. None if the kind keeps nothing in files.
    """

    kind: str
    summary: str
    config: type[C]
    open: Callable[[TierContext, C], StorageTier]
    sample_config: Callable[[Path], C]
    open_archive: Callable[[Path], TierArchive] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatcherProvider(Generic[C]):
    """Offers a kind of checkpoint matcher. Attributes as in `TierProvider`."""

    kind: str
    summary: str
    config: type[C]
    open: Callable[[MatcherContext, C], CheckpointMatcher]
    sample_config: Callable[[Path], C]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProvider(Generic[C]):
    """Offers a kind of placement policy. Attributes as in `TierProvider`."""

    kind: str
    summary: str
    config: type[C]
    open: Callable[[PolicyContext, C], PlacementPolicy]
    sample_config: Callable[[Path], C]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderProvider(Generic[C]):
    """Offers a kind of speculative decoder. Attributes as in `TierProvider`."""

    kind: str
    summary: str
    config: type[C]
    open: Callable[[DecoderContext, C], SpeculativeDecoder]
    sample_config: Callable[[Path], C]
