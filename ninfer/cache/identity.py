"""What names a stored image: exact token paths, digests and headers. Knows nothing about where images live."""

import hashlib
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ninfer.api import ImageKind
from ninfer.core.step import PAGE_SIZE_TOKENS

TOKEN_BYTES: Final = 4
PAGE_TOKEN_BYTES: Final = PAGE_SIZE_TOKENS * TOKEN_BYTES
_UINT32: Final = next(code for code in "IL" if array(code).itemsize == TOKEN_BYTES)
_HEADER_BEGIN: Final = struct.Struct("<4sHBxI")
"""Magic, length of the domain, kind, position: what names the content. Behind it uses, times and deadlines, then again names."""
_HEADER: Final = struct.Struct("<4sHBxIIddddI32s32s")
_HISTORY_END: Final = struct.calcsize("<4sHBxIIdddd")
_MAGIC: Final = b"NIH2"
_KINDS: Final = {ImageKind.PAGE: 0, ImageKind.STATE: 1}

Digest = Callable[[bytes], bytes]
"""Maps bytes to 32 bytes. Replaced in tests to force collisions."""


def sha256(content: bytes) -> bytes:
    """Return the SHA-256 of `content`, 32 bytes."""
    return hashlib.sha256(content).digest()


def encode_tokens(token_ids: Sequence[int]) -> bytes:
    """Return token ids as big-endian 32-bit integers, so that byte order is token order."""
    encoded = array(_UINT32, token_ids)
    if sys.byteorder == "little":
        encoded.byteswap()
    return encoded.tobytes()


def decode_tokens(encoded: bytes) -> list[int]:
    """Return the token ids of `encode_tokens`."""
    decoded: list[int] = np.frombuffer(encoded, dtype=">u4").tolist()
    return decoded


def common_prefix_tokens(left: bytes, right: bytes) -> int:
    """Return how many leading tokens two encoded sequences share."""
    low, high = 0, min(len(left), len(right)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if left[: middle * TOKEN_BYTES] == right[: middle * TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low


def domain_key(*, salt: str, adapter: str = "", media_digests: Sequence[bytes] = ()) -> bytes:
    """Return the bytes that separate tenants, adapters and media.

    Every part is typed and length-prefixed, so that no two kinds of domain can collide.
    """
    parts = [(b"s", salt.encode()), (b"a", adapter.encode())]
    parts += [(b"m", media) for media in media_digests]
    return b"".join(kind + struct.pack("<I", len(part)) + part for kind, part in parts if part)


@dataclass(slots=True, kw_only=True)
class ImageHeader:
    """What is stored beside an image so that a restart can rebuild the tree and a reader can compare.

    Nobody changes one. Not frozen, for one is made for every image that moves.

    Attributes:
        kind: page or state.
        end_tokens: position just after the image.
        num_uses: at the time of writing.
        created_unix_s: when the object was first stored.
        last_use_unix_s: at the time of writing.
        retain_s: how far away a use moves its deadline, 0.0 if it was not retained at the time of writing.
        retain_until_unix_s: that deadline.
        parent_digest: digest of the page before it (or of the domain), 32 bytes.
        domain: key of the domain.
        tokens: encoded token ids of the page (of the page that ends at `end_tokens`, for a state).
    """

    kind: ImageKind
    end_tokens: int
    num_uses: int
    created_unix_s: float
    last_use_unix_s: float
    parent_digest: bytes
    domain: bytes
    tokens: bytes
    retain_s: float = 0.0
    retain_until_unix_s: float = 0.0

    def pack(self) -> bytes:
        """Return the header as bytes."""
        body = self.domain + self.tokens
        fixed = _HEADER.pack(
            _MAGIC,
            len(self.domain),
            _KINDS[self.kind],
            self.end_tokens,
            self.num_uses,
            self.created_unix_s,
            self.last_use_unix_s,
            self.retain_s,
            self.retain_until_unix_s,
            len(self.tokens),
            self.parent_digest,
            sha256(body),
        )
        return fixed + body

    @classmethod
    def unpack(cls, packed: bytes) -> "ImageHeader | None":
        """Return the header, or None if the bytes are not one."""
        if len(packed) < _HEADER.size:
            return None
        fields = _HEADER.unpack_from(packed)
        magic, num_domain, kind, end, uses, created, used, seconds, until, num_tokens = fields[:10]
        parent, digest = fields[10:]
        body = packed[_HEADER.size :]
        if magic != _MAGIC or len(body) != num_domain + num_tokens or sha256(body) != digest:
            return None
        return cls(
            kind=ImageKind.STATE if kind else ImageKind.PAGE,
            end_tokens=end,
            num_uses=uses,
            created_unix_s=created,
            last_use_unix_s=used,
            parent_digest=parent,
            domain=body[:num_domain],
            tokens=body[num_domain:],
            retain_s=seconds,
            retain_until_unix_s=until,
        )

    def names_same_content(self, other: "ImageHeader") -> bool:
        """Tell whether two headers name the same bytes: exact tokens on the same path, same kind."""
        return (
            self.kind is other.kind
            and self.end_tokens == other.end_tokens
            and self.parent_digest == other.parent_digest
            and self.domain == other.domain
            and self.tokens == other.tokens
        )

    def is_named_by(self, packed: bytes) -> bool:
        """Tell whether a packed header names the same bytes as this one: exact tokens on the same path, same kind."""
        begin = _HEADER_BEGIN.pack(_MAGIC, len(self.domain), _KINDS[self.kind], self.end_tokens)
        lineage = len(self.tokens).to_bytes(4, "little") + self.parent_digest
        return (
            packed[: len(begin)] == begin
            and packed[_HISTORY_END : _HISTORY_END + len(lineage)] == lineage
            and packed[_HEADER.size :] == self.domain + self.tokens
        )


HEADER_OVERHEAD_BYTES: Final = _HEADER.size
"""Bytes of a packed header beside domain and tokens."""
