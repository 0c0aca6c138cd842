"""What the configuration picks from the installed plugins. Opens nothing, changes nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ninfer.api import (
    ConfigError,
    DecoderProvider,
    MatcherProvider,
    PluginConfig,
    PluginError,
    PolicyProvider,
    TierProvider,
)
from ninfer.config import LoadedSettings
from ninfer.plugins.catalog import PluginCatalog
from ninfer.plugins.options import parse_options
from ninfer.plugins.record import Family, PluginRecord, Provider
from ninfer.plugins.report import Culprit, stop_report, warning_line
from ninfer.plugins.suspects import may_offer
from ninfer.plugins.use import DECODER_AUTO, Use, uses_of

P = TypeVar("P", bound=Provider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Generic[P]):
    """What the configuration picked: a provider with its options parsed.

    Attributes:
        use: the place of the configuration.
        provider: what to open.
        config: parsed options, an instance of `provider.config`.
        record: the plugin.
    """

    use: Use
    provider: P
    config: PluginConfig
    record: PluginRecord

    @property
    def name(self) -> str:
        """Name of the tier, else the kind."""
        return self.use.instance or self.use.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Everything that the configuration picked.

    Attributes:
        tiers: tiers below the device, fastest first.
        policy: placement policy, None with the cache off.
        matcher: checkpoint matcher, None with the cache off.
        decoder: speculative decoder, None if off or, for "auto", if no working plugin offers it.
        is_decoder_auto: use `decoder` only for a model that has an MTP head.
        warnings: one line per broken plugin that nothing uses, and per disabled name that is not installed.
    """

    tiers: tuple[Chosen[TierProvider[Any]], ...]
    policy: Chosen[PolicyProvider[Any]] | None
    matcher: Chosen[MatcherProvider[Any]] | None
    decoder: Chosen[DecoderProvider[Any]] | None
    is_decoder_auto: bool
    warnings: tuple[str, ...]


def select_plugins(catalog: PluginCatalog, loaded: LoadedSettings) -> Selection:
    """Pick what the configuration names and parse its options.

    Args:
        catalog: installed plugins.
        loaded: settings with their origins.

    Returns:
        Providers and parsed options.

    Raises:
        PluginError: the configuration uses a broken plugin, or one is broken and `plugins.strict` is set; the text
            is one report of all of them, and of every other mistake.
        ConfigError: a kind that nothing offers, or wrong options; the text has every mistake.
    """
    uses = uses_of(loaded)
    culprits = find_culprits(catalog, uses, is_strict=loaded.settings.plugins.strict)
    picker = _Picker(catalog, loaded, {id(use) for culprit in culprits for use in culprit.uses})
    by_family = {family: [use for use in uses if use.family is family] for family in Family}
    selection = Selection(
        tiers=tuple(picker.pick(by_family[Family.TIER], catalog.tier)),
        policy=next(iter(picker.pick(by_family[Family.POLICY], catalog.policy)), None),
        matcher=next(iter(picker.pick(by_family[Family.MATCHER], catalog.matcher)), None),
        decoder=next(iter(picker.pick(by_family[Family.DECODER], catalog.decoder)), None),
        is_decoder_auto=loaded.settings.spec.decoder == DECODER_AUTO,
        warnings=_warnings(catalog, loaded),
    )
    if culprits:
        raise PluginError(stop_report(culprits, picker.problems))
    if picker.problems:
        count = len(picker.problems)
        head = "1 setting is wrong" if count == 1 else f"{count} settings are wrong"
        raise ConfigError("\n  ".join([head, *picker.problems]))
    return selection


def find_culprits(
    catalog: PluginCatalog, uses: tuple[Use, ...], *, is_strict: bool
) -> list[Culprit]:
    """Return the broken plugins that must stop the start, each with the places that use it.

    Args:
        catalog: installed plugins.
        uses: what the configuration names.
        is_strict: broken plugins that nothing uses count too.
    """
    missing = [use for use in uses if not use.is_optional and not catalog.has(use.family, use.kind)]
    culprits = []
    for record in catalog.broken():
        wanted = tuple(use for use in missing if may_offer(record, use.family, use.kind))
        if wanted or is_strict:
            culprits.append(Culprit(record=record, uses=wanted))
    return culprits


def _warnings(catalog: PluginCatalog, loaded: LoadedSettings) -> tuple[str, ...]:
    broken = [warning_line(record) for record in catalog.broken()]
    source = loaded.source_of("plugins.disabled")
    absent = [
        f"{source}: plugins.disabled names {name!r}, which is not installed"
        for name in loaded.settings.plugins.disabled
        if not catalog.named(name)
    ]
    return (*broken, *absent)


@dataclass(slots=True)
class _Picker:
    """Looks kinds up and parses options; collects what goes wrong."""

    catalog: PluginCatalog
    loaded: LoadedSettings
    reported: set[int]
    problems: list[str] = field(default_factory=list)

    def pick(
        self, uses: list[Use], find: Callable[[str], tuple[P, PluginRecord]]
    ) -> list[Chosen[P]]:
        picked = []
        for use in uses:
            is_hopeless = id(use) in self.reported
            if is_hopeless or (use.is_optional and not self.catalog.has(use.family, use.kind)):
                continue
            try:
                provider, record = find(use.kind)
            except ConfigError as error:
                self.problems.append(f"{use.source}: {use.key}: {error}")
                continue
            config, mistakes = parse_options(use, provider, record, self.loaded)
            self.problems += mistakes
            if config is not None:
                picked.append(Chosen(use=use, provider=provider, config=config, record=record))
        return picked
