"""Verifying, deleting and copying stored images, a bounded piece at a time. Knows nothing about a running engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ninfer.api import (
    ImageKey,
    ImageRecord,
    PutItem,
    PutStatus,
    ReadItem,
    ReadResult,
    ReadStatus,
    StoreInfo,
    TierArchive,
)

_PIECE_BYTES: Final = 64 << 20
"""Payload held in memory at once, unless one image is longer."""
_PIECE_IMAGES: Final = 256

Advance = Callable[[int], None]
"""Called with the number of images just done."""


@dataclass(slots=True, kw_only=True)
class Copied:
    """Result of copying.

    Attributes:
        num_images: copied, or there already.
        num_bytes: of their payloads.
        problems: a sentence for each image that could not be read or written.
    """

    num_images: int = 0
    num_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def damaged_images(
    archive: TierArchive, store_id: str, records: Sequence[ImageRecord], advance: Advance
) -> Iterator[tuple[ImageRecord, str]]:
    """Read every image; yield those that are not what was stored, and why.

    An image that a running server deletes meanwhile is not damaged.
    """
    for piece in _pieces(records):
        for record, result, _ in _read(archive, store_id, piece):
            if result.status not in {ReadStatus.READ, ReadStatus.MISSING}:
                yield record, result.message
        advance(len(piece))


def delete_images(archive: TierArchive, store_id: str, keys: Sequence[ImageKey]) -> None:
    """Delete images, a bounded number at a time.

    Raises:
        TierUnavailable: a server has the store open.
    """
    left = iter(keys)
    while piece := list(islice(left, _PIECE_IMAGES)):
        archive.delete(store_id, piece)


def copy_contexts(
    source: TierArchive,
    target: TierArchive,
    info: StoreInfo,
    records: Sequence[ImageRecord],
    advance: Advance,
) -> Copied:
    """Copy images of one store into the store of the same fingerprint elsewhere, in the given order.

    Args:
        source: where they are.
        target: where they go.
        info: their store.
        records: which; pages before what continues them, so that an interrupted copy is of use.
        advance: progress.

    Raises:
        TierUnavailable: a server has the target's store open.
    """
    copied = Copied()
    for piece in _pieces(records):
        items = []
        for record, result, payload in _read(source, info.store_id, piece):
            if result.status is ReadStatus.READ:
                items.append(PutItem(key=record.key, header=result.header, payload=payload))
            else:
                reason = result.message or "it is gone"
                copied.problems.append(f"{record.key.text}: {reason}")
        for item, put in zip(items, target.put(info, items), strict=True):
            if put.status is PutStatus.STORED:
                copied.num_images += 1
                copied.num_bytes += item.payload.nbytes
            else:
                copied.problems.append(f"{item.key.text}: {put.message}")
        advance(len(piece))
    return copied


def _pieces(records: Sequence[ImageRecord]) -> Iterator[list[ImageRecord]]:
    piece: list[ImageRecord] = []
    num_bytes = 0
    for record in records:
        if piece and (num_bytes + record.num_bytes > _PIECE_BYTES or len(piece) == _PIECE_IMAGES):
            yield piece
            piece, num_bytes = [], 0
        piece.append(record)
        num_bytes += record.num_bytes
    if piece:
        yield piece


def _read(
    archive: TierArchive, store_id: str, records: Sequence[ImageRecord]
) -> Iterator[tuple[ImageRecord, ReadResult, memoryview]]:
    buffers = [memoryview(bytearray(record.num_bytes)) for record in records]
    items = [
        ReadItem(key=record.key, buffer=buffer)
        for record, buffer in zip(records, buffers, strict=True)
    ]
    yield from zip(records, archive.read_into(store_id, items), buffers, strict=True)
