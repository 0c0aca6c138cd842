"""Takes over what a durable tier kept from an earlier process. Reads no payload."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ninfer.api import ImageKey, ImageKind, ImageRecord
from ninfer.cache.identity import TOKEN_BYTES, ImageHeader
from ninfer.cache.node import PageNode
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_handle import TierHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Result of taking a tier over.

    Attributes:
        num_kept: images usable again.
        num_dropped: images without their prefix, without room or without a header of ours.
        left: of a shared tier, images without their prefix or without room; they stay where they are, for their writer
            may still have the prefix elsewhere.
    """

    num_kept: int
    num_dropped: int
    left: Sequence[ImageRecord] = ()


def recover(store: ContextStore, handle: TierHandle, tier: int) -> Recovered:
    """Rebuild the tree from the headers of a tier; drop what cannot be used.

    The most valuable images are kept if the tier is smaller than it was, see `by_value`. An image whose prefix is not stored
    anywhere is of no use.

    Args:
        store: an empty store, or one that faster tiers were recovered into.
        handle: the tier.
        tier: its index.
    """
    by_digest: dict[bytes, PageNode] = {}
    for node in store.tree.nodes():
        by_digest[store.names.digest_of(node)] = node
    found: list[_Found] = []
    unusable: list[ImageKey] = []
    without_place: list[ImageKey] = []
    records = {record.key: record for record in handle.records()}
    for record in records.values():
        header = ImageHeader.unpack(record.header)
        if header is None or record.num_bytes != _payload_bytes(store, header):
            unusable.append(record.key)
        else:
            num_bytes = handle.stored_bytes(len(record.header), record.num_bytes)
            found.append(_Found(header=header, key=record.key, num_bytes=num_bytes))
    found = _most_valuable_first(found, lambda digest: digest in by_digest, store.clock.unix_s())
    waiting = _within_capacity(found, store.ledgers[tier - 1].free_bytes, without_place)
    waiting.sort(key=lambda item: (item.header.end_tokens, item.header.kind))
    num_kept = 0
    for item in waiting:
        if _take_over(store, item, tier, by_digest):
            num_kept += 1
        else:
            without_place.append(item.key)
    left: list[ImageRecord] = []
    if handle.capabilities.shared:
        left = [records[key] for key in without_place]
    else:
        unusable += without_place
    if unusable:
        handle.delete(unusable)
    return Recovered(num_kept=num_kept, num_dropped=len(unusable), left=left)


def by_value(records: Sequence[ImageRecord], *, now_unix_s: float = math.inf) -> list[ImageRecord]:
    """Order images most valuable first, so that whatever part from the front is kept can be used.

    Retained contexts before others, then by their last use; of a context the head before the tail and pages before
    the state at their end. An image counts as used and retained when anything behind it was. Images whose prefix is
    not among `records` go last, behind them what has no header of ours.

    Args:
        records: images of a tier.
        now_unix_s: deadlines before this have passed; all of them without it.
    """
    found: list[_Found] = []
    foreign: list[ImageRecord] = []
    of_key: dict[ImageKey, ImageRecord] = {}
    for record in records:
        header = ImageHeader.unpack(record.header)
        if header is None:
            foreign.append(record)
        else:
            of_key[record.key] = record
            found.append(_Found(header=header, key=record.key))
    return [
        of_key[item.key] for item in _most_valuable_first(found, lambda _: False, now_unix_s)
    ] + foreign


@dataclass(slots=True, kw_only=True, eq=False)
class _Found:
    """An image of a tier: its header, its name and what it takes there."""

    header: ImageHeader
    key: ImageKey
    num_bytes: int = 0


def _most_valuable_first(
    found: Sequence[_Found], is_known: Callable[[bytes], bool], now_unix_s: float
) -> list[_Found]:
    """Order images; `is_known` tells whether the page of a digest is stored elsewhere."""
    pages = [item for item in found if item.header.kind is ImageKind.PAGE]
    by_digest = {item.key.digest: item for item in pages}
    by_path = {(p.header.parent_digest, p.header.domain, p.header.tokens): p for p in pages}

    def page_before(item: _Found) -> _Found | None:
        header = item.header
        if header.kind is ImageKind.PAGE:
            return by_digest.get(header.parent_digest)
        return by_path.get((header.parent_digest, header.domain, header.tokens))

    heads_first = sorted(found, key=_head_first)
    last_use = {item.key: item.header.last_use_unix_s for item in found}
    deadline = {item.key: item.header.retain_until_unix_s for item in found}
    for item in reversed(heads_first):
        before = page_before(item)
        if before is not None:
            last_use[before.key] = max(last_use[before.key], last_use[item.key])
            deadline[before.key] = max(deadline[before.key], deadline[item.key])
    has_prefix: dict[ImageKey, bool] = {}
    for item in heads_first:
        header, before = item.header, page_before(item)
        if before is not None:
            has_prefix[item.key] = has_prefix.get(before.key, False)
        elif (
            header.kind is ImageKind.PAGE and len(header.tokens) == header.end_tokens * TOKEN_BYTES
        ):
            has_prefix[item.key] = True
        else:
            has_prefix[item.key] = is_known(header.parent_digest)

    def rank(item: _Found) -> tuple[bool, bool, float]:
        is_ordinary = deadline[item.key] <= now_unix_s
        return not has_prefix[item.key], is_ordinary, -last_use[item.key]

    return sorted(heads_first, key=rank)


def _head_first(item: _Found) -> tuple[int, bool]:
    return item.header.end_tokens, item.header.kind is ImageKind.STATE


def _payload_bytes(store: ContextStore, header: ImageHeader) -> int:
    if header.kind is ImageKind.STATE:
        return store.layout.state_image_bytes
    return store.layout.page_image_bytes


def _within_capacity(
    found: Sequence[_Found], free_bytes: int, unusable: list[ImageKey]
) -> list[_Found]:
    kept = []
    for item in found:
        if item.num_bytes <= free_bytes:
            free_bytes -= item.num_bytes
            kept.append(item)
        else:
            free_bytes = 0
            unusable.append(item.key)
    return kept


def _take_over(
    store: ContextStore, item: _Found, tier: int, by_digest: dict[bytes, PageNode]
) -> bool:
    header = item.header
    root = store.tree.root(header.domain)
    by_digest.setdefault(store.names.digest_of(root), root)
    parent = by_digest.get(header.parent_digest)
    if parent is None or parent.is_tail:
        return False
    stored = store.restore_record(parent, header, tier, item.num_bytes)
    if stored is None:
        return False
    store.retentions.adopt(stored)
    store.values.offer(stored, tier)
    if isinstance(stored, PageNode):
        by_digest[store.names.digest_of(stored)] = stored
    return store.names.key_of(stored) == item.key
