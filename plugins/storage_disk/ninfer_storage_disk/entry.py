"""One image as the journal describes it, and its bytes there. Knows nothing about files."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ninfer.api import ImageKey, ImageKind, ImageRecord
from ninfer_storage_disk.blocks import Run

LIVE_MAGIC: Final = b"NiL1"
DEAD_MAGIC: Final = b"Ni\xb3\xce"
"""Written over LIVE_MAGIC in place when an image is deleted; needs no room, so a full disk can delete. Of the bytes that
differ every bit does, so that no flipped bit deletes."""

MAGIC_PREFIX: Final = b"Ni"
ALIGN_BYTES: Final = 8

_HEAD: Final = struct.Struct("<4sIIBBHIQQQ")
"""magic, CRC-32 of all that follows it, entry length, kind, digest length, header length, number of runs,
sequence, payload length, payload checksum. Then digest, runs, header, zeros up to 8 bytes."""

_RUN: Final = struct.Struct("<QI")
_CRC_START: Final = 8
_KINDS: Final = tuple(ImageKind)


@dataclass(slots=True, eq=False)
class Entry:
    """One stored image.

    Attributes:
        key: its name.
        header: bytes given by the core.
        num_bytes: payload length.
        checksum: of the payload.
        runs: blocks that hold the payload, in order.
        sequence: grows with every entry written; of two entries with one key or one block the later one holds.
        offset: place in the journal, -1 before it is written.
    """

    key: ImageKey
    header: bytes
    num_bytes: int
    checksum: int
    runs: Sequence[Run]
    sequence: int
    offset: int = -1

    @property
    def start(self) -> int:
        """The first block, 0 of an image without bytes."""
        return self.runs[0][0] if self.runs else 0

    @property
    def entry_bytes(self) -> int:
        """Length in the journal."""
        return entry_bytes(len(self.key.digest), len(self.header), len(self.runs))

    @property
    def record(self) -> ImageRecord:
        """What the core sees of it."""
        return ImageRecord(key=self.key, header=self.header, num_bytes=self.num_bytes)


class NewImage(NamedTuple):
    """An image to be written. `payload` is borrowed."""

    key: ImageKey
    header: bytes
    payload: memoryview


def entry_bytes(digest_bytes: int, header_bytes: int, num_runs: int) -> int:
    """Return the length of an entry in the journal."""
    length = _HEAD.size + digest_bytes + num_runs * _RUN.size + header_bytes
    return -(-length // ALIGN_BYTES) * ALIGN_BYTES


def encode(entry: Entry) -> bytes:
    """Return the bytes of a live entry."""
    digest, header, runs = entry.key.digest, entry.header, entry.runs
    body = digest + b"".join([_RUN.pack(start, count) for start, count in runs]) + header
    num_bytes = _HEAD.size + len(body)
    length = -(-num_bytes // ALIGN_BYTES) * ALIGN_BYTES
    head = _HEAD.pack(
        LIVE_MAGIC,
        0,
        length,
        _KINDS.index(entry.key.kind),
        len(digest),
        len(header),
        len(runs),
        entry.sequence,
        entry.num_bytes,
        entry.checksum,
    )
    tail = head[_CRC_START:] + body + bytes(length - num_bytes)
    return LIVE_MAGIC + zlib.crc32(tail).to_bytes(4, "little") + tail


def decode(journal: memoryview, offset: int) -> tuple[Entry | None, int] | None:
    """Read the entry at `offset`.

    Returns:
        (entry, end), with None for the entry if it is dead; None if there is no whole, undamaged entry.
    """
    if offset + _HEAD.size > len(journal):
        return None
    (
        magic,
        crc,
        length,
        kind,
        digest_bytes,
        header_bytes,
        num_runs,
        sequence,
        num_bytes,
        payload_checksum,
    ) = _HEAD.unpack_from(journal, offset)
    end = offset + length
    is_known = magic in {LIVE_MAGIC, DEAD_MAGIC}
    if (
        not is_known
        or end > len(journal)
        or length != entry_bytes(digest_bytes, header_bytes, num_runs)
    ):
        return None
    if zlib.crc32(journal[offset + _CRC_START : end]) != crc or kind >= len(_KINDS):
        return None
    if magic == DEAD_MAGIC:
        return None, end
    position = offset + _HEAD.size
    digest = bytes(journal[position : position + digest_bytes])
    position += digest_bytes
    runs = tuple(
        Run(*_RUN.unpack_from(journal, position + index * _RUN.size)) for index in range(num_runs)
    )
    position += num_runs * _RUN.size
    header = bytes(journal[position : position + header_bytes])
    key = ImageKey(digest=digest, kind=_KINDS[kind])
    return Entry(key, header, num_bytes, payload_checksum, runs, sequence, offset), end
