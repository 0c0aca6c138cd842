"""Guesses which plugin offers a kind when no working one does. Only for messages and for the report."""

from collections.abc import Sequence
from typing import Final

from ninfer.plugins.record import Family, PluginRecord

KNOWN_DISTRIBUTIONS: Final = {
    (Family.TIER, "host"): "ninfer-storage-host",
    (Family.TIER, "disk"): "ninfer-storage-disk",
    (Family.POLICY, "costmodel"): "ninfer-policy-costmodel",
    (Family.DECODER, "mtp"): "ninfer-spec-mtp",
    (Family.MATCHER, "radix"): "ninfer",
    (Family.POLICY, "lru"): "ninfer",
    (Family.DECODER, "ngram"): "ninfer",
}
"""Distributions that offer well-known kinds."""


def may_offer(record: PluginRecord, family: Family, kind: str) -> bool:
    """Tell whether a plugin offers a kind, or would if it could be loaded.

    A plugin that broke before it was asked is judged by its names: `storage_s3` or the distribution
    `ninfer-storage-s3` is taken to offer the kind `s3`.
    """
    if record.offers:
        return any((offer.family, offer.kind) == (family, kind) for offer in record.offers)
    names = (record.name, record.distribution.replace("-", "_"))
    if any(name == kind or name.endswith(f"_{kind}") for name in names):
        return True
    return record.distribution == KNOWN_DISTRIBUTIONS.get((family, kind))


def install_hint(family: Family, kind: str, records: Sequence[PluginRecord]) -> str:
    """Return "; try pip install ..." for a well-known kind that is not installed, else nothing."""
    distribution = KNOWN_DISTRIBUTIONS.get((family, kind))
    if distribution is None or any(record.distribution == distribution for record in records):
        return ""
    return f"; try: pip install {distribution}"
