"""Which kinds the configuration wants, and where it says so. Knows nothing about what is installed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ninfer.config import LoadedSettings, TierEntry
from ninfer.plugins.record import Family, Offer

DECODER_OFF: Final = "off"
DECODER_AUTO: Final = "auto"
AUTO_DECODER_KIND: Final = "mtp"
"""Decoder that "auto" means for models that have such a head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One place of the configuration that names a kind.

    Attributes:
        family: family of the kind.
        kind: the name.
        instance: name of the tier, else empty.
        options: the table for the plugin, not parsed yet.
        key: setting that names the kind, for example "cache.tiers[1]".
        options_key: setting that holds the options, for example "cache.tiers[1]" or "cache.policy_options".
        source: where the setting comes from, for example "ninfer.toml".
        is_optional: not a mistake if nothing offers the kind.
    """

    family: Family
    kind: str
    instance: str = ""
    options: Mapping[str, Any]
    key: str
    options_key: str
    source: str
    is_optional: bool = False

    @property
    def where(self) -> str:
        """The place in one line, for people."""
        name = f'name="{self.instance}" ' if self.instance else ""
        return f'{self.source}: {self.key} {name}kind="{self.kind}"'

    def is_of(self, offer: Offer) -> bool:
        """True if it names this offer."""
        return (self.family, self.kind) == (offer.family, offer.kind)


def uses_of(loaded: LoadedSettings) -> tuple[Use, ...]:
    """List every kind that the configuration names, tiers first, in their order.

    With the cache off, tiers and policy are not used; the optional decoder of "auto" is.
    """
    settings = loaded.settings
    uses: list[Use] = []
    if settings.cache.enabled:
        uses += [_tier(loaded, index, entry) for index, entry in enumerate(settings.cache.tiers)]
        uses.append(
            _single(
                loaded, Family.POLICY, settings.cache.policy, "cache.policy", "cache.policy_options"
            )
        )
        uses.append(
            _single(
                loaded,
                Family.MATCHER,
                settings.cache.matcher,
                "cache.matcher",
                "cache.matcher_options",
            )
        )
    decoder = settings.spec.decoder
    if decoder != DECODER_OFF and settings.spec.draft_tokens > 0:
        kind = AUTO_DECODER_KIND if decoder == DECODER_AUTO else decoder
        uses.append(_single(loaded, Family.DECODER, kind, "spec.decoder", "spec.options"))
    return tuple(uses)


def _tier(loaded: LoadedSettings, index: int, entry: TierEntry) -> Use:
    key = f"cache.tiers[{index}]"
    return Use(
        family=Family.TIER,
        kind=entry.kind,
        instance=entry.name,
        options=entry.options,
        key=key,
        options_key=key,
        source=loaded.source_of(key),
    )


def _single(loaded: LoadedSettings, family: Family, kind: str, key: str, options_key: str) -> Use:
    is_auto = family is Family.DECODER and loaded.settings.spec.decoder == DECODER_AUTO
    section, _, field = options_key.partition(".")
    return Use(
        family=family,
        kind=kind,
        options=loaded.settings.model_dump(include={section: {field}})[section][field],
        key=key,
        options_key=options_key,
        source=loaded.source_of(key),
        is_optional=is_auto,
    )
