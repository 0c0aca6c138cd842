"""Takes over what a durable tier kept from an earlier process. Reads no payload."""

from dataclasses import dataclass

from ninfer.api import ImageKey, ImageKind
from ninfer.cache.identity import ImageHeader
from ninfer.cache.node import PageNode
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_handle import TierHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Result of taking a tier over.

    Attributes:
        num_kept: images usable again.
        num_dropped: images without their prefix, without room or without a header of ours.
    """

    num_kept: int
    num_dropped: int


def recover(store: ContextStore, handle: TierHandle, tier: int) -> Recovered:
    """Rebuild the tree from the headers of a tier; drop what cannot be used.

    The most recently used images are kept if the tier is smaller than it was. An image whose prefix is not stored
    anywhere is of no use.

    Args:
        store: an empty store, or one that faster tiers were recovered into.
        handle: the tier.
        tier: its index.
    """
    found: list[tuple[ImageHeader, ImageKey, int]] = []
    unusable: list[ImageKey] = []
    for record in handle.records():
        header = ImageHeader.unpack(record.header)
        if header is None or record.num_bytes != _payload_bytes(store, header):
            unusable.append(record.key)
        else:
            num_bytes = handle.stored_bytes(len(record.header), record.num_bytes)
            found.append((header, record.key, num_bytes))
    found.sort(key=lambda item: (-item[0].last_use_unix_s, item[0].end_tokens, item[0].kind))
    waiting = _within_capacity(found, store.ledgers[tier - 1].free_bytes, unusable)
    waiting.sort(key=lambda item: (item[0].end_tokens, item[0].kind))
    num_kept = 0
    by_digest: dict[bytes, PageNode] = {}
    for node in store.tree.nodes():
        by_digest[store.names.digest_of(node)] = node
    for header, key, num_bytes in waiting:
        if _take_over(store, header, key, tier, num_bytes, by_digest):
            num_kept += 1
        else:
            unusable.append(key)
    if unusable:
        handle.delete(unusable)
    return Recovered(num_kept=num_kept, num_dropped=len(unusable))


def _payload_bytes(store: ContextStore, header: ImageHeader) -> int:
    if header.kind is ImageKind.STATE:
        return store.layout.state_image_bytes
    return store.layout.page_image_bytes


def _within_capacity(
    found: list[tuple[ImageHeader, ImageKey, int]], free_bytes: int, unusable: list[ImageKey]
) -> list[tuple[ImageHeader, ImageKey, int]]:
    kept = []
    for item in found:
        if item[2] <= free_bytes:
            free_bytes -= item[2]
            kept.append(item)
        else:
            free_bytes = 0
            unusable.append(item[1])
    return kept


def _take_over(
    store: ContextStore,
    header: ImageHeader,
    key: ImageKey,
    tier: int,
    num_bytes: int,
    by_digest: dict[bytes, PageNode],
) -> bool:
    root = store.tree.root(header.domain)
    by_digest.setdefault(store.names.digest_of(root), root)
    parent = by_digest.get(header.parent_digest)
    if parent is None or parent.is_tail:
        return False
    stored = store.restore_record(parent, header, tier, num_bytes)
    if stored is None:
        return False
    if isinstance(stored, PageNode):
        by_digest[store.names.digest_of(stored)] = stored
    return store.names.key_of(stored) == key
