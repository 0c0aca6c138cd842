"""All installed plugins, looked up by kind. Knows nothing about the configuration."""

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ninfer.api import ConfigError, DecoderProvider, MatcherProvider, PolicyProvider, TierProvider
from ninfer.plugins.discovery import discover
from ninfer.plugins.record import Family, Offer, PluginRecord, PluginState, Provider
from ninfer.plugins.suspects import install_hint, may_offer

P = TypeVar("P", bound=Provider)


@dataclass(frozen=True, slots=True)
class PluginCatalog:
    """All installed plugins.

    Attributes:
        records: one per entry point, in the order of names.
    """

    records: tuple[PluginRecord, ...]

    @classmethod
    def discover(
        cls, disabled: Collection[str] = (), *, path: Sequence[str] | None = None
    ) -> "PluginCatalog":
        """Import and check all installed plugins; see `ninfer.plugins.discovery.discover`."""
        return cls(discover(disabled, path=path))

    def tier(self, kind: str) -> tuple[TierProvider[Any], PluginRecord]:
        """Return the provider of a kind of tier, and its plugin.

        Raises:
            ConfigError: nothing that works offers the kind; the text lists the kinds that exist.
        """
        return self._find(Family.TIER, kind, TierProvider)

    def policy(self, kind: str) -> tuple[PolicyProvider[Any], PluginRecord]:
        """Return the provider of a kind of placement policy, and its plugin. Raises as `tier` does."""
        return self._find(Family.POLICY, kind, PolicyProvider)

    def matcher(self, kind: str) -> tuple[MatcherProvider[Any], PluginRecord]:
        """Return the provider of a kind of checkpoint matcher, and its plugin. Raises as `tier` does."""
        return self._find(Family.MATCHER, kind, MatcherProvider)

    def decoder(self, kind: str) -> tuple[DecoderProvider[Any], PluginRecord]:
        """Return the provider of a kind of speculative decoder, and its plugin. Raises as `tier` does."""
        return self._find(Family.DECODER, kind, DecoderProvider)

    def has(self, family: Family, kind: str) -> bool:
        """True if a working plugin offers the kind."""
        return kind in self.kinds(family)

    def kinds(self, family: Family) -> list[str]:
        """Return the kinds of a family that working plugins offer, sorted."""
        return sorted(offer.kind for _, offer in self._working() if offer.family is family)

    def broken(self) -> list[PluginRecord]:
        """Return the broken plugins."""
        return [record for record in self.records if record.is_broken]

    def named(self, name: str) -> list[PluginRecord]:
        """Return the plugins of a name: none, one, or all that fight for it."""
        return [record for record in self.records if record.name == name]

    def _working(self) -> Iterator[tuple[PluginRecord, Offer]]:
        for record in self.records:
            if record.state is PluginState.LOADED:
                for offer in record.offers:
                    yield record, offer

    def _find(self, family: Family, kind: str, wanted: type[P]) -> tuple[P, PluginRecord]:
        for record, offer in self._working():
            if (offer.family, offer.kind) == (family, kind) and isinstance(offer.provider, wanted):
                return offer.provider, record
        raise ConfigError(self._not_found(family, kind))

    def _not_found(self, family: Family, kind: str) -> str:
        kinds = self.kinds(family)
        near = difflib.get_close_matches(kind, kinds, n=1)
        text = f"there is no {family} kind {kind!r}; there is {', '.join(kinds) or 'none at all'}"
        text += f"; did you mean {near[0]}?" if near else ""
        for record in self.records:
            if record.state is PluginState.DISABLED and may_offer(record, family, kind):
                text += f'; plugin {record.name} is disabled ("[plugins] disabled")'
        unknown = [record.name for record in self.broken() if not record.offers]
        if unknown:
            text += f"; broken plugins may offer more: {', '.join(unknown)}"
        return text + install_hint(family, kind, self.records)
