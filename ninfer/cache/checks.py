"""The equations of the context store, as sentences about what does not hold. For tests, `/health` and post-mortems."""

from collections.abc import Iterable, Iterator

from ninfer.api import ImageKind
from ninfer.api.errors import InvariantBroken
from ninfer.cache.node import DEVICE, PageNode, StoredObject
from ninfer.cache.store import ContextStore


def check(store: ContextStore) -> list[str]:
    """Return a sentence for each equation that does not hold. Cost: one walk over everything stored."""
    objects = list(_objects(store))
    problems = store.pages.check()
    problems += _check_device(store, objects)
    problems += _check_lower(store, objects)
    problems += store.retentions.check(objects)
    for node in store.tree.nodes():
        problems += _check_node(store, node)
    return problems


def require(store: ContextStore) -> None:
    """Raise if an equation does not hold.

    Raises:
        InvariantBroken: with all broken ones.
    """
    problems = check(store)
    if problems:
        raise InvariantBroken("; ".join(problems))


def _objects(store: ContextStore) -> Iterator[StoredObject]:
    for node in store.tree.nodes():
        yield node
        if node.image is not None:
            yield node.image


def _check_device(store: ContextStore, objects: Iterable[StoredObject]) -> Iterable[str]:
    pages: list[int] = []
    slots: list[int] = []
    num_leased = 0
    for stored in objects:
        replica = stored.replicas[DEVICE]
        if replica is None:
            continue
        if stored.kind is ImageKind.PAGE:
            pages.append(replica.location)
            num_leased += replica.leases > 0
        else:
            slots.append(replica.location)
    held = [*pages, *store.private_pages]
    if len(set(held)) != len(held):
        yield "a device page has two owners"
    if any(store.pages.is_free(page) for page in held):
        yield "a device page is free and owned"
    num_gone = store.layout.num_pages - store.pages.num_free - len(held)
    if num_gone != store.num_gone_pages:
        yield (
            f"{store.pages.num_free} free + {len(pages)} in nodes + {len(store.private_pages)} private "
            f"+ {store.num_gone_pages} of gone nodes != {store.layout.num_pages} pages"
        )
    if num_leased + store.num_gone_pages != store.num_leased_pages:
        yield f"{num_leased} leased pages counted, {store.num_leased_pages} booked"
    all_slots = [*slots, *store.private_slots, *store.free_slots]
    if sorted(all_slots) != sorted(set(all_slots)):
        yield "a state slot has two owners"


def _check_lower(store: ContextStore, objects: Iterable[StoredObject]) -> Iterable[str]:
    for tier in range(1, store.num_tiers):
        ledger = store.ledgers[tier - 1]
        used = reserved = 0
        for stored in objects:
            replica = stored.replicas[tier]
            if replica is not None and replica.is_valid:
                used += replica.num_bytes
            elif replica is not None:
                reserved += replica.num_bytes
        gone = store.gone_bytes[tier - 1]
        foreign = ledger.foreign_bytes
        if used + gone + reserved + foreign != ledger.used_bytes + ledger.reserved_bytes:
            yield (
                f"tier {tier}: {used} used + {reserved} reserved + {gone} gone + {foreign} foreign != "
                f"{ledger.used_bytes} + {ledger.reserved_bytes} booked"
            )
        if not 0 <= ledger.free_bytes <= ledger.capacity_bytes:
            yield f"tier {tier}: {ledger.free_bytes} B free of {ledger.capacity_bytes} B"


def _check_node(store: ContextStore, node: PageNode) -> Iterable[str]:
    where = f"node ending at {node.end_tokens}"
    if node.is_gone:
        yield f"{where} is gone and in the tree"
    if not node.has_replica():
        yield f"{where} has no replica and is in the tree"
    if node.is_tail and node.has_followers():
        yield f"{where} is a tail with followers"
    followers = node.followers()
    for tier in range(store.num_tiers):
        replica = node.replicas[tier]
        if replica is not None and replica.leases < 0:
            yield f"{where} has {replica.leases} leases on tier {tier}"
        counted = sum(follower.replicas[tier] is not None for follower in followers)
        if counted != node.child_replicas[tier]:
            yield f"{where}: {counted} followers on tier {tier}, {node.child_replicas[tier]} booked"
    live = (node.image is not None) + sum(follower.live_images for follower in followers)
    if live != node.live_images:
        yield f"{where}: {live} images at or below, {node.live_images} booked"
