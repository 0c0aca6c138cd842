"""What a tier stores: opaque byte images under content keys. Knows nothing about tensors or tiers."""

from dataclasses import dataclass
from enum import StrEnum

from typing_extensions import override


class ImageKind(StrEnum):
    """What the bytes of an image are."""

    PAGE = "page"
    """KV of up to 64 consecutive tokens, all layers of every typed KV pool."""
    STATE = "state"
    """All fixed-size state needed to continue after one token position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageKey:
    """Name of an image: what it holds, never who wrote it.

    Attributes:
        digest: 32 bytes; SHA-256 over domain, exact token path and kind. Finds, never proves: the reader
            compares the header.
        kind: what the bytes are.
    """

    digest: bytes
    kind: ImageKind

    @override
    def __hash__(self) -> int:
        """Of the digest alone, which Python remembers: keys are looked up for every page that moves."""
        return hash(self.digest)

    @property
    def text(self) -> str:
        """A name safe for every file system and key-value server: `<kind>-<64 hex digits>`."""
        return f"{self.kind.value}-{self.digest.hex()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    """One stored image as an enumerable tier reports it.

    Attributes:
        key: name of the image.
        header: the header bytes given to `put`, unchanged.
        num_bytes: payload length.
    """

    key: ImageKey
    header: bytes
    num_bytes: int
