"""Opens what the configuration picked, and says whose fault it is when that fails."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

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
from ninfer.core.plugin_guard import describe, is_interrupt
from ninfer.plugins.record import Phase
from ninfer.plugins.selection import Chosen

_log = structlog.get_logger(__name__)

SLOW_OPEN_S: Final = 10.0
"""A plugin that opens for longer is named in the log: whoever waits for the start should know for whom."""


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
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise OpenFailed(chosen, f"capabilities raised {describe(error)}") from error
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
    try:
        wants_hidden: object = opened.uses_hidden_states
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise OpenFailed(chosen, f"uses_hidden_states raised {describe(error)}") from error
    if not isinstance(wants_hidden, bool):
        kind = type(wants_hidden).__qualname__
        raise OpenFailed(chosen, f"uses_hidden_states is a {kind}, not True or False")
    return opened


def _open(chosen: Chosen[Any], context: object) -> object:
    try:
        with _told_if_slow(chosen):
            return chosen.provider.open(context, chosen.config)
    except BaseException as error:
        if is_interrupt(error):
            raise
        text = str(error) if isinstance(error, NinferError) else describe(error)
        _log.debug("plugin_not_opened", plugin=chosen.record.name, problem=text, exc_info=error)
        raise OpenFailed(chosen, text) from error


@contextmanager
def _told_if_slow(chosen: Chosen[Any]) -> Iterator[None]:
    """Write a log line about a plugin that takes long to open: a start cannot be given a deadline, but a name."""

    def tell() -> None:
        _log.warning(
            "plugin_still_opening",
            family=chosen.use.family.value,
            name=chosen.name,
            plugin=chosen.record.name,
            distribution=chosen.record.origin,
            operation="open",
            seconds=SLOW_OPEN_S,
        )

    timer = threading.Timer(SLOW_OPEN_S, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _wrong_type(chosen: Chosen[Any], opened: object, wanted: str) -> OpenFailed:
    return OpenFailed(chosen, f"open returned a {type(opened).__qualname__}, not a {wanted}")


def _capabilities_mistake(capabilities: object) -> str:
    if isinstance(capabilities, TierCapabilities):
        wrong = [name for name, value in asdict(capabilities).items() if type(value) is not bool]
        return f"capabilities: {', '.join(wrong)} must be True or False" if wrong else ""
    return f"capabilities are a {type(capabilities).__qualname__}, not TierCapabilities"
