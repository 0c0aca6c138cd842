"""Names of stored objects on lower tiers: digests, keys, headers. Knows nothing about where objects live."""

from ninfer.api import Clock, ImageKey, ImageKind
from ninfer.cache.identity import Digest, ImageHeader
from ninfer.cache.node import PageNode, StoredObject, page_of


class Names:
    """Makes names from exact token paths.

    Args:
        clock: to write times that survive a restart.
        digest: hash; replaced in tests to force collisions.
    """

    def __init__(self, clock: Clock, digest: Digest) -> None:
        """Remember how to hash."""
        self._clock = clock
        self._digest = digest

    def digest_of(self, node: PageNode) -> bytes:
        """Return the digest of a node's exact path (32 bytes), made once."""
        return self.page_key_of(node).digest

    def key_of(self, stored: StoredObject) -> ImageKey:
        """Return the name of an object on lower tiers."""
        node = page_of(stored)
        return self.page_key_of(node) if stored is node else self.state_key_of(node)

    def page_key_of(self, node: PageNode) -> ImageKey:
        """Return the name of a page, made once."""
        key = node.key
        return key if key is not None else self._make_key(node)

    def _make_key(self, node: PageNode) -> ImageKey:
        """Name a node, and those before it that have no name yet."""
        missing = [node]
        while (parent := missing[-1].parent) is not None and parent.key is None:
            missing.append(parent)
        while missing:
            member = missing.pop()
            above = member.parent.key if member.parent is not None else None
            begin = b"page" + above.digest if above is not None else b"domain" + member.domain
            digest = self._digest(begin + member.tokens)
            member.key = ImageKey(digest=digest, kind=ImageKind.PAGE)
        return self.page_key_of(node)

    def state_key_of(self, node: PageNode) -> ImageKey:
        """Return the name of the state at the end of a page, whether there is one or not."""
        digest = self._digest(b"state" + self.digest_of(node))
        return ImageKey(digest=digest, kind=ImageKind.STATE)

    def header_of(self, stored: StoredObject) -> ImageHeader:
        """Return the header to store beside an object."""
        node = page_of(stored)
        parent = node.parent
        to_unix_s = self._clock.unix_s() - self._clock.monotonic_s()
        return ImageHeader(
            kind=stored.kind,
            end_tokens=node.end_tokens,
            num_uses=stored.num_uses,
            created_unix_s=stored.created_s + to_unix_s,
            last_use_unix_s=stored.last_use_s + to_unix_s,
            retain_s=stored.retain_s,
            retain_until_unix_s=stored.retain_until_s + to_unix_s if stored.retain_s else 0.0,
            parent_digest=self.digest_of(parent) if parent is not None else bytes(32),
            domain=node.domain,
            tokens=node.tokens,
        )

    def read_history(self, header: ImageHeader, stored: StoredObject) -> None:
        """Let an object go on where the one that `header` was written for ended: its uses, its times, its deadline."""
        now_s = self._clock.monotonic_s()
        to_monotonic_s = now_s - self._clock.unix_s()
        stored.num_uses = header.num_uses
        stored.created_s = header.created_unix_s + to_monotonic_s
        stored.last_use_s = header.last_use_unix_s + to_monotonic_s
        deadline_s = header.retain_until_unix_s + to_monotonic_s
        if header.retain_s and deadline_s > now_s:
            stored.retain_s, stored.retain_until_s = header.retain_s, deadline_s
