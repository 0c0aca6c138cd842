"""Opens what the configuration picked, and says whose fault it is when that fails."""

from typing import Any

from ninfer.api import (
    CheckpointMatcher,
    DecoderContext,
    DecoderProvider,
    MatcherContext,
    MatcherProvider,
    NinferError,
    PlacementPolicy,
    PluginError,
    PolicyContext,
    PolicyProvider,
    SpeculativeDecoder,
    StorageTier,
    TierCapabilities,
    TierContext,
    TierProvider,
)
from ninfer.plugins.record import Phase
from ninfer.plugins.selection import Chosen


def open_tier(chosen: Chosen[TierProvider[Any]], context: TierContext) -> StorageTier:
    """Open one tier. May block on I/O.

    Raises:
        PluginError: it cannot be opened, is not a StorageTier, or declares no capabilities; the text names tier,
            kind, plugin and distribution.
    """
    opened = _open(chosen, context)
    if not isinstance(opened, StorageTier):
        raise _wrong_type(chosen, opened, StorageTier.__name__)
    try:
        mistake = _capabilities_mistake(opened.capabilities)
    except Exception as error:
        raise PluginError(
            _text(chosen, f"capabilities raised {type(error).__name__}: {error}")
        ) from error
    if mistake:
        raise PluginError(_text(chosen, mistake))
    return opened


def open_policy(chosen: Chosen[PolicyProvider[Any]], context: PolicyContext) -> PlacementPolicy:
    """Open the placement policy. Raises PluginError as `open_tier` does."""
    opened = _open(chosen, context)
    if not isinstance(opened, PlacementPolicy):
        raise _wrong_type(chosen, opened, PlacementPolicy.__name__)
    return opened


def open_matcher(
    chosen: Chosen[MatcherProvider[Any]], context: MatcherContext
) -> CheckpointMatcher:
    """Open the checkpoint matcher. Raises PluginError as `open_tier` does."""
    opened = _open(chosen, context)
    if not isinstance(opened, CheckpointMatcher):
        raise _wrong_type(chosen, opened, CheckpointMatcher.__name__)
    return opened


def open_decoder(
    chosen: Chosen[DecoderProvider[Any]], context: DecoderContext
) -> SpeculativeDecoder:
    """Open the speculative decoder. Raises PluginError as `open_tier` does."""
    opened = _open(chosen, context)
    if not isinstance(opened, SpeculativeDecoder):
        raise _wrong_type(chosen, opened, SpeculativeDecoder.__name__)
    return opened


def _open(chosen: Chosen[Any], context: object) -> object:
    try:
        return chosen.provider.open(context, chosen.config)
    except NinferError as error:
        raise PluginError(_text(chosen, str(error))) from error
    except Exception as error:
        raise PluginError(_text(chosen, f"{type(error).__name__}: {error}")) from error


def _wrong_type(chosen: Chosen[Any], opened: object, wanted: str) -> PluginError:
    return PluginError(
        _text(chosen, f"open returned a {type(opened).__qualname__}, not a {wanted}")
    )


def _capabilities_mistake(capabilities: object) -> str:
    if isinstance(capabilities, TierCapabilities):
        return ""
    return f"capabilities are a {type(capabilities).__qualname__}, not TierCapabilities"


def _text(chosen: Chosen[Any], error: str) -> str:
    use, record = chosen.use, chosen.record
    name = f"{use.family} {chosen.name!r}" + (f" of kind {use.kind!r}" if use.instance else "")
    return "\n".join([
        f"cannot start, {name} does not open",
        f"  {record.name}   {record.origin}   (ninfer: {record.name} = {record.entry_point})",
        f"    phase    {Phase.OPEN}",
        f"    error    {error}",
        f"    used by  {use.where}",
    ])
