"""Opens what the configuration picked, and says whose fault it is when that fails."""

from collections.abc import Sequence
from typing import Any

import structlog

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

_log = structlog.get_logger(__name__)


class OpenFailed(PluginError):
    """A configured plugin loads but cannot be opened.

    Args:
        chosen: what was to be opened.
        error: what went wrong, one line.
    """

    def __init__(self, chosen: Chosen[Any], error: str) -> None:
        """Make the report of this one failure."""
        use, record = chosen.use, chosen.record
        kind = f" of kind {use.kind!r}" if use.instance else ""
        self.subject = f"{use.family} {chosen.name!r}{kind}"
        self.lines = [
            f"  {record.name}   {record.origin}   (ninfer: {record.name} = {record.entry_point})",
            f"    phase    {Phase.OPEN} {self.subject}",
            f"    error    {error}",
            f"    used by  {use.where}",
            "    try      ninfer serve --set log.level=debug, which shows where it failed",
        ]
        super().__init__("\n".join([f"cannot start, {self.subject} does not open", *self.lines]))


def open_report(failures: Sequence[OpenFailed]) -> PluginError:
    """Return one error for all plugins that do not open.

    Args:
        failures: at least one.
    """
    if len(failures) == 1:
        return failures[0]
    lines = [line for failure in failures for line in failure.lines]
    return PluginError("\n".join([f"cannot start, {len(failures)} plugins do not open", *lines]))


def open_tier(chosen: Chosen[TierProvider[Any]], context: TierContext) -> StorageTier:
    """Open one tier. May block on I/O.

    Raises:
        OpenFailed: it cannot be opened, is not a StorageTier, or declares no capabilities; the text names tier,
            kind, plugin and distribution.
    """
    opened = _open(chosen, context)
    if not isinstance(opened, StorageTier):
        raise _wrong_type(chosen, opened, StorageTier.__name__)
    try:
        mistake = _capabilities_mistake(opened.capabilities)
    except (Exception, SystemExit) as error:
        raise OpenFailed(chosen, f"capabilities raised {type(error).__name__}: {error}") from error
    if mistake:
        raise OpenFailed(chosen, mistake)
    return opened


def open_policy(chosen: Chosen[PolicyProvider[Any]], context: PolicyContext) -> PlacementPolicy:
    """Open the placement policy. Raises OpenFailed as `open_tier` does."""
    opened = _open(chosen, context)
    if not isinstance(opened, PlacementPolicy):
        raise _wrong_type(chosen, opened, PlacementPolicy.__name__)
    return opened


def open_matcher(
    chosen: Chosen[MatcherProvider[Any]], context: MatcherContext
) -> CheckpointMatcher:
    """Open the checkpoint matcher. Raises OpenFailed as `open_tier` does."""
    opened = _open(chosen, context)
    if not isinstance(opened, CheckpointMatcher):
        raise _wrong_type(chosen, opened, CheckpointMatcher.__name__)
    return opened


def open_decoder(
    chosen: Chosen[DecoderProvider[Any]], context: DecoderContext
) -> SpeculativeDecoder:
    """Open the speculative decoder. Raises OpenFailed as `open_tier` does."""
    opened = _open(chosen, context)
    if not isinstance(opened, SpeculativeDecoder):
        raise _wrong_type(chosen, opened, SpeculativeDecoder.__name__)
    return opened


def _open(chosen: Chosen[Any], context: object) -> object:
    try:
        return chosen.provider.open(context, chosen.config)
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, NinferError) else f"{type(error).__name__}: {error}"
        _log.debug("plugin_not_opened", plugin=chosen.record.name, problem=text, exc_info=error)
        raise OpenFailed(chosen, text) from error


def _wrong_type(chosen: Chosen[Any], opened: object, wanted: str) -> OpenFailed:
    return OpenFailed(chosen, f"open returned a {type(opened).__qualname__}, not a {wanted}")


def _capabilities_mistake(capabilities: object) -> str:
    if isinstance(capabilities, TierCapabilities):
        return ""
    return f"capabilities are a {type(capabilities).__qualname__}, not TierCapabilities"
