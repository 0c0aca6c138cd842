"""Which contexts a set of stored images makes up. Knows nothing about tiers, files or a running engine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        states: state images along the path, by position.
        num_shared_pages: leading pages that other contexts use too.
    """

    pages: Sequence[StoredImage]
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
        first_tokens = self.pages[self.num_shared_pages].header.end_tokens
        states = [image for image in self.states if image.header.end_tokens >= first_tokens]
        return [*self.pages[self.num_shared_pages :], *states]

    @property
    def images(self) -> list[StoredImage]:
        """Everything needed to continue it, pages before the states behind them."""
        return [*self.pages, *self.states]

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
            place = (header.parent_digest, header.domain, header.tokens)
            states[place] = StoredImage(record=record, header=header)
    num_followers = _followers(pages)
    contexts = []
    used_states: set[ImageKey] = set()
    for digest, count in num_followers.items():
        if count:
            continue
        path = _path_to(pages, digest)
        along = list(_states_along(path, states))
        used_states.update(image.record.key for image in along)
        num_shared = len(path) - 1
        while num_shared and num_followers[path[num_shared - 1].record.key.digest] == 1:
            num_shared -= 1
        contexts.append(StoredContext(pages=path, states=along, num_shared_pages=num_shared))
    unusable += [image.record.key for digest, image in pages.items() if digest not in num_followers]
    unusable += [
        image.record.key for image in states.values() if image.record.key not in used_states
    ]
    contexts.sort(key=lambda context: -context.last_use_unix_s)
    return StoredContexts(contexts=contexts, unusable=unusable)


def _followers(pages: Mapping[bytes, StoredImage]) -> dict[bytes, int]:
    """Count the pages right behind each page whose prefix is complete, by digest; parents first."""
    num_followers: dict[bytes, int] = {}
    for digest, image in sorted(pages.items(), key=lambda item: item[1].header.end_tokens):
        header = image.header
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


def _states_along(
    path: Sequence[StoredImage], states: Mapping[tuple[bytes, bytes, bytes], StoredImage]
) -> Iterator[StoredImage]:
    for page in path:
        header = page.header
        state = states.get((header.parent_digest, header.domain, header.tokens))
        if state is not None:
            yield state
