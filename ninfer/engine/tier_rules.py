"""What the configuration lets be written to a tier. Knows nothing about how that is kept."""

from ninfer.api import TierCapabilities
from ninfer.cache.tier_space import WriteFilter, WriteRules
from ninfer.config.settings import Settings


def write_rules(settings: Settings, name: str, capabilities: TierCapabilities) -> WriteRules:
    """Return the rules of the tier with an instance name; "auto" becomes what suits its capabilities.

    Raises:
        KeyError: no such tier is configured.
    """
    entry = {tier.name: tier for tier in settings.cache.tiers}[name]
    outlives = capabilities.durable and not capabilities.shared
    admit = ("idle" if outlives else "all") if entry.admit == "auto" else entry.admit
    return WriteRules(
        max_bytes_per_s=entry.max_write_per_s,
        max_bytes_per_day=entry.max_write_per_day,
        filter=WriteFilter(admit),
    )
