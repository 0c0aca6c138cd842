"""Stored objects: page nodes of the radix tree, state images, and their replicas. Records, no logic of moving."""

from collections.abc import Collection

from ninfer.api import ImageKey, ImageKind
from ninfer.cache.identity import PAGE_TOKEN_BYTES, TOKEN_BYTES

DEVICE = 0
"""Index of the device tier; slower tiers follow."""


class Replica:
    """One full copy of an object on one tier.

    Attributes:
        location: page id or state slot on the device, -1 on lower tiers (they go by key).
        num_bytes: what the tier's ledger counts for it.
        leases: references that keep it from being evicted.
        is_valid: False while its bytes are being written; then it is a reservation.
        stamp: changes whenever its entry in the victim order becomes stale.
        protected_bytes: what it takes of the tier's budget for retained objects, 0 if it is not protected.
        is_leaving: a plan that is being carried out gives it up; it is in no victim order.
    """

    __slots__ = (
        "is_leaving",
        "is_valid",
        "leases",
        "location",
        "num_bytes",
        "protected_bytes",
        "stamp",
    )

    def __init__(self, *, location: int, num_bytes: int, is_valid: bool) -> None:
        """Make a replica without leases."""
        self.location = location
        self.num_bytes = num_bytes
        self.is_valid = is_valid
        self.leases = 0
        self.stamp = 0
        self.protected_bytes = 0
        self.is_leaving = False


class StoredObject:
    """What has replicas: a page or a state image.

    Attributes:
        replicas: by tier index, None where there is none.
        num_uses: requests that resumed from or through it.
        created_s: monotonic seconds.
        last_use_s: monotonic seconds.
        last_use_index: running number of the last use.
        is_gone: no longer in the tree; replicas still leased are freed by their last release.
        retain_s: how far away a use moves the deadline until which it is retained, 0.0 if it is not.
        retain_until_s: the deadline, monotonic seconds.
        promised_bytes: what it counts among all that is promised until its deadline, 0 if it is not retained.
        strict_tier: tier with room set aside for it until the deadline, DEVICE for none.
        strict_bytes: that room.
    """

    __slots__ = (
        "created_s",
        "is_gone",
        "last_use_index",
        "last_use_s",
        "num_uses",
        "promised_bytes",
        "replicas",
        "retain_s",
        "retain_until_s",
        "strict_bytes",
        "strict_tier",
    )
    kind: ImageKind

    def __init__(self, num_tiers: int, now_s: float, use_index: int) -> None:
        """Make an object without replicas, used now."""
        self.replicas: list[Replica | None] = [None] * num_tiers
        self.num_uses = 1
        self.created_s = now_s
        self.last_use_s = now_s
        self.last_use_index = use_index
        self.is_gone = False
        self.retain_s = 0.0
        self.retain_until_s = 0.0
        self.promised_bytes = 0
        self.strict_tier = DEVICE
        self.strict_bytes = 0

    def valid_on(self, tier: int) -> Replica | None:
        """Return the replica on a tier if its bytes are there."""
        replica = self.replicas[tier]
        return replica if replica is not None and replica.is_valid else None

    def fastest_tier(self, stalled: Collection[int] = ()) -> int | None:
        """Return the fastest tier with a valid replica that answers, None if there is none."""
        for tier, replica in enumerate(self.replicas):
            if replica is not None and replica.is_valid and tier not in stalled:
                return tier
        return None

    def has_valid_below(self, tier: int) -> bool:
        """Tell whether a slower tier holds a valid replica."""
        for slower in range(tier + 1, len(self.replicas)):
            replica = self.replicas[slower]
            if replica is not None and replica.is_valid:
                return True
        return False

    def has_replica(self) -> bool:
        """Tell whether any tier holds it or is about to."""
        return any(replica is not None for replica in self.replicas)


class PageNode(StoredObject):
    """A page of the radix tree: 64 exact tokens after its parent, or 1..63 for a tail, which has no children.

    Attributes:
        parent: the page before; None for the root of a domain, which has no tokens and no replicas.
        tokens: encoded token ids.
        end_tokens: position after its last token.
        children: full pages after it, sorted by tokens; None for none.
        tails: partial pages after it, sorted by tokens; None for none.
        image: state image at its end.
        child_replicas: by tier, how many children and tails have a replica there.
        live_images: state images at its end or further down.
        key: name for lower tiers, made when first needed.
        domain: key of the domain.
        is_endpoint: a request ended here.
    """

    __slots__ = (
        "child_replicas",
        "children",
        "domain",
        "end_tokens",
        "image",
        "is_endpoint",
        "key",
        "live_images",
        "parent",
        "tails",
        "tokens",
    )
    kind = ImageKind.PAGE

    def __init__(
        self,
        parent: "PageNode | None",
        tokens: bytes,
        *,
        num_tiers: int,
        now_s: float,
        use_index: int,
    ) -> None:
        """Make a node without replicas and children; the tree links it."""
        super().__init__(num_tiers, now_s, use_index)
        self.parent = parent
        self.tokens = tokens
        start_tokens = parent.end_tokens if parent else 0
        self.end_tokens: int = start_tokens + len(tokens) // TOKEN_BYTES
        self.children: list[PageNode] | None = None
        self.tails: list[PageNode] | None = None
        self.image: StateImage | None = None
        self.child_replicas = [0] * num_tiers
        self.live_images = 0
        self.key: ImageKey | None = None
        self.domain: bytes = parent.domain if parent else b""
        self.is_endpoint = False

    @property
    def is_root(self) -> bool:
        """True for the start of a domain."""
        return self.parent is None

    @property
    def is_tail(self) -> bool:
        """True for a partial page."""
        return 0 < len(self.tokens) < PAGE_TOKEN_BYTES

    @property
    def num_tokens(self) -> int:
        """Tokens of this page."""
        return len(self.tokens) // TOKEN_BYTES

    def followers(self) -> "list[PageNode]":
        """Return children and tails."""
        return [*(self.children or ()), *(self.tails or ())]

    def has_followers(self) -> bool:
        """Tell whether anything continues from here."""
        return bool(self.children) or bool(self.tails)


class StateImage(StoredObject):
    """The complete fixed-size state after the last token of a node.

    Attributes:
        node: the page at whose end it is.
        is_superseded: its lineage has a newer image and nobody else branched here.
        is_rung: it was captured for the geometric ladder.
    """

    __slots__ = ("is_rung", "is_superseded", "node")
    kind = ImageKind.STATE

    def __init__(self, node: PageNode, *, num_tiers: int, now_s: float, use_index: int) -> None:
        """Make an image without replicas; the store links it."""
        super().__init__(num_tiers, now_s, use_index)
        self.node = node
        self.is_superseded = False
        self.is_rung = False


def is_protected(stored: StoredObject, tier: int) -> bool:
    """Tell whether a replica on a tier outranks those that are not: it is retained within the tier's budget."""
    if stored.strict_tier == tier != DEVICE:
        return True
    replica = stored.replicas[tier]
    return replica is not None and replica.protected_bytes > 0


def page_of(stored: StoredObject) -> PageNode:
    """Return the page at whose end an object lies: itself, or the page of an image."""
    if isinstance(stored, StateImage):
        return stored.node
    assert isinstance(stored, PageNode)  # noqa: S101 - there are two kinds
    return stored
