"""Which contexts a set of stored images makes up. Knows nothing about tiers, files or a running engine."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ninfer.api import ImageKey, ImageKind, ImageRecord
from ninfer.cache.identity import TOKEN_BYTES, ImageHeader, decode_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image with its header read."""

    record: ImageRecord
    header: ImageHeader

    @property
    def num_bytes(self) -> int:
        """Bytes of header and payload."""
        return len(self.record.header) + self.record.num_bytes


@dataclass(frozen=True, kw_only=True)
class StoredContext:
    """One path of the tree of stored pages, from its start to a page that nothing continues.

    Attributes:
        pages: from the first one on, partial last page included.
        tails: partial pages that end at resume points on the way, each a copy of the first part of a page.
        states: state images along the path, by position.
        num_shared_pages: leading pages that other contexts use too.
    """

    pages: Sequence[StoredImage]
    tails: Sequence[StoredImage]
    states: Sequence[StoredImage]
    num_shared_pages: int

    @property
    def context_id(self) -> str:
        """Twelve hex digits that name the context: of the digest of its last page."""
        return self.pages[-1].record.key.digest.hex()[:12]

    @property
    def num_tokens(self) -> int:
        """Length in tokens."""
        return self.pages[-1].header.end_tokens

    @property
    def salt(self) -> bytes:
        """What separates its tenant, empty for none."""
        return self.pages[-1].header.domain

    @property
    def resume_tokens(self) -> int:
        """Deepest position to continue from: of the last state image, or the end for models without state."""
        return self.states[-1].header.end_tokens if self.states else self.num_tokens

    @cached_property
    def last_use_unix_s(self) -> float:
        """When any part that is its own was used last."""
        return max(image.header.last_use_unix_s for image in self.own_images)

    @cached_property
    def num_uses(self) -> int:
        """Most uses of any part that is its own."""
        return max(image.header.num_uses for image in self.own_images)

    @property
    def created_unix_s(self) -> float:
        """When its last page was first stored."""
        return self.pages[-1].header.created_unix_s

    @cached_property
    def own_images(self) -> list[StoredImage]:
        """Images that no other context needs; never empty."""
        own_pages = self.pages[self.num_shared_pages :]
        start_tokens = (
            own_pages[0].header.end_tokens - len(own_pages[0].header.tokens) // TOKEN_BYTES
        )
        others = [*self.tails, *self.states]
        return [*own_pages, *(image for image in others if image.header.end_tokens > start_tokens)]

    @property
    def images(self) -> list[StoredImage]:
        """Everything needed to continue it, pages before the states behind them."""
        return [*self.pages, *self.tails, *self.states]

    @property
    def own_bytes(self) -> int:
        """Bytes that go with it."""
        return sum(image.num_bytes for image in self.own_images)

    @property
    def num_bytes(self) -> int:
        """Bytes of everything needed to continue it."""
        return sum(image.num_bytes for image in self.images)

    def token_ids(self) -> list[int]:
        """Return the exact tokens."""
        return [token for page in self.pages for token in decode_tokens(page.header.tokens)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredContexts:
    """What a store holds.

    Attributes:
        contexts: the latest used first.
        unusable: images without a header of ours or whose prefix is not there.
    """

    contexts: Sequence[StoredContext]
    unusable: Sequence[ImageKey]


def stored_contexts(records: Iterable[ImageRecord]) -> StoredContexts:
    """Sort images into contexts.

    Time and memory grow with the number of images and with the pages of all contexts, shared ones counted for each.
    """
    pages: dict[bytes, StoredImage] = {}
    states: dict[tuple[bytes, bytes, bytes], StoredImage] = {}
    unusable: list[ImageKey] = []
    for record in records:
        header = ImageHeader.unpack(record.header)
        if header is None:
            unusable.append(record.key)
        elif header.kind is ImageKind.PAGE:
            pages[record.key.digest] = StoredImage(record=record, header=header)
        else:
            states[_place(header)] = StoredImage(record=record, header=header)
    tails = _tails(pages)
    tail_digests = {tail.record.key.digest for group in tails.values() for tail in group}
    num_followers = _followers(pages, tail_digests)
    contexts = []
    used: set[ImageKey] = set()
    for digest, count in num_followers.items():
        if count:
            continue
        path = _path_to(pages, digest)
        along = [tail for page in path for tail in tails.get(page.record.key.digest, ())]
        ends = sorted([*path, *along], key=lambda image: image.header.end_tokens)
        found = [state for end in ends if (state := states.get(_place(end.header))) is not None]
        used.update(image.record.key for image in (*path, *along, *found))
        num_shared = len(path) - 1
        while num_shared and num_followers[path[num_shared - 1].record.key.digest] == 1:
            num_shared -= 1
        contexts.append(
            StoredContext(pages=path, tails=along, states=found, num_shared_pages=num_shared)
        )
    known = (*pages.values(), *states.values())
    unusable += [image.record.key for image in known if image.record.key not in used]
    contexts.sort(key=lambda context: -context.last_use_unix_s)
    return StoredContexts(contexts=contexts, unusable=unusable)


def _place(header: ImageHeader) -> tuple[bytes, bytes, bytes]:
    """Return what a state and the page that ends where it stands have in common."""
    return header.parent_digest, header.domain, header.tokens


def _tails(pages: Mapping[bytes, StoredImage]) -> dict[bytes, list[StoredImage]]:
    """Return partial pages by the digest of the longest page that begins with the same tokens, short to long."""
    siblings: dict[tuple[bytes, bytes], list[StoredImage]] = {}
    for image in pages.values():
        siblings.setdefault((image.header.parent_digest, image.header.domain), []).append(image)
    tails: dict[bytes, list[StoredImage]] = {}
    for group in siblings.values():
        group.sort(key=lambda image: image.header.tokens, reverse=True)
        longer = group[0]
        for image in group[1:]:
            if longer.header.tokens.startswith(image.header.tokens):
                tails.setdefault(longer.record.key.digest, []).insert(0, image)
            else:
                longer = image
    return tails


def _followers(
    pages: Mapping[bytes, StoredImage], tail_digests: Collection[bytes]
) -> dict[bytes, int]:
    """Count the pages right behind each page whose prefix is complete, by digest; tails do not count."""
    num_followers: dict[bytes, int] = {}
    for digest, image in sorted(pages.items(), key=lambda item: item[1].header.end_tokens):
        header = image.header
        if digest in tail_digests:
            continue
        if header.parent_digest in num_followers:
            num_followers[header.parent_digest] += 1
        elif len(header.tokens) != header.end_tokens * TOKEN_BYTES:
            continue
        num_followers[digest] = 0
    return num_followers


def _path_to(pages: Mapping[bytes, StoredImage], digest: bytes) -> list[StoredImage]:
    path = []
    image: StoredImage | None = pages[digest]
    while image is not None:
        path.append(image)
        image = pages.get(image.header.parent_digest)
    return path[::-1]
