"""What others changed since a place in the log. Knows nothing about who asks."""

from dataclasses import dataclass

from ninfer.api import ImageKey, ImageRecord, TierChanges
from ninfer_tier_redis import scripts
from ninfer_tier_redis.keyspace import key_of
from ninfer_tier_redis.record import Entry
from ninfer_tier_redis.store import ServerError, Store


@dataclass(frozen=True, slots=True)
class Place:
    """Where somebody has got to.

    Attributes:
        epoch: of the accounting; another one means that everything was deleted in between.
        seq: number of the last change seen.
        scan: place in a list of everything, None when only changes are read.
    """

    epoch: str
    seq: int
    scan: int | None = None

    def pack(self) -> bytes:
        """Return the place as bytes."""
        scan = "" if self.scan is None else str(self.scan)
        return f"{self.epoch}:{self.seq}:{scan}".encode()

    @classmethod
    def unpack(cls, packed: bytes) -> "Place | None":
        """Return the place, None if the bytes are not one."""
        epoch, _, rest = packed.decode("ascii", "replace").partition(":")
        seq, _, scan = rest.partition(":")
        if not seq.isdigit() or (scan and not scan.isdigit()):
            return None
        return cls(epoch, int(seq), int(scan) if scan else None)


def changes_since(store: Store, cursor: bytes, *, limit: int, lists_all: bool) -> TierChanges:
    """Return changes by others.

    Args:
        store: the images.
        cursor: of the last answer; empty asks for the present place only.
        limit: about how many records to return.
        lists_all: begin a list of everything.

    Raises:
        Unreachable: the server does not answer.
        ServerError: it refuses.
    """
    now = _present(store)
    place = Place.unpack(cursor)
    if not cursor:
        return TierChanges(cursor=now.pack())
    if lists_all or place is None or place.epoch != now.epoch or place.seq > now.seq:
        place = Place(now.epoch, now.seq, scan=0)
    if place.scan is not None:
        return _list(store, place, place.scan, limit)
    if place.seq == now.seq:
        return TierChanges(cursor=cursor)
    return _read_log(store, place, now, limit)


def _present(store: Store) -> Place:
    reply = store.link.send([("HMGET", store.keys.meta, "epoch", "seq")])[0]
    if isinstance(reply, Exception):
        raise ServerError(str(reply))
    epoch, seq = reply
    return Place((epoch or b"").decode(), int(seq or 0))


def _list(store: Store, place: Place, scan: int, limit: int) -> TierChanges:
    scan, found = store.page(scan, limit)
    after = Place(place.epoch, place.seq, scan or None)
    return TierChanges(records=_records(found), cursor=after.pack())


def _read_log(store: Store, place: Place, now: Place, limit: int) -> TierChanges:
    command = ("XRANGE", store.keys.log, f"({place.seq}-0", "+", "COUNT", limit)
    entries = store.link.send([command])[0]
    if isinstance(entries, Exception):
        raise ServerError(str(entries))
    if not entries or _number(entries[0][0]) != place.seq + 1:
        return _list(store, Place(now.epoch, now.seq), 0, limit)
    last: dict[bytes, tuple[bytes, bytes]] = {}
    for _, fields in entries:
        last[fields[b"image"]] = (fields[b"change"], fields[b"writer"])
    others = {f: change for f, (change, writer) in last.items() if writer != store.writer.encode()}
    added = [field for field, change in others.items() if change == scripts.ADDED]
    removed = [key_of(field) for field, change in others.items() if change == scripts.REMOVED]
    return TierChanges(
        records=_records(store.entries_of(added)),
        removed=tuple(key for key in removed if key is not None),
        cursor=Place(place.epoch, _number(entries[-1][0])).pack(),
    )


def _number(entry_id: bytes) -> int:
    return int(entry_id.split(b"-")[0])


def _records(found: list[tuple[bytes, Entry]]) -> tuple[ImageRecord, ...]:
    keyed: list[tuple[ImageKey | None, Entry]] = [(key_of(f), entry) for f, entry in found]
    return tuple(entry.record(key) for key, entry in keyed if key is not None)
