"""The Redis tier: batches of the contract on top of a store. Knows nothing about pages, models or eviction."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import redis
from typing_extensions import override

from ninfer.api import (
    ConfigError,
    ImageKey,
    ImageRecord,
    PutItem,
    PutResult,
    PutStatus,
    ReadItem,
    ReadResult,
    ReadStatus,
    StorageTier,
    TierCapabilities,
    TierChanges,
    TierClosed,
    TierContext,
    TierUnavailable,
    TierUsage,
)
from ninfer_tier_redis import scripts
from ninfer_tier_redis.changes import changes_since
from ninfer_tier_redis.config import RedisConfig
from ninfer_tier_redis.keyspace import Keyspace, field_of, key_of
from ninfer_tier_redis.link import Link, Unreachable
from ninfer_tier_redis.own_server import OwnServer
from ninfer_tier_redis.record import (
    MAX_VALUE_BYTES,
    Image,
    charge_of,
    checksum,
    largest_value_bytes,
    read_entry,
    read_value,
    without_number,
)
from ninfer_tier_redis.store import ServerError, Store

_log = logging.getLogger(__name__)
T = TypeVar("T")

_CAPABILITIES: Final = TierCapabilities(durable=True, enumerable=True, shared=True)


class RedisTier(StorageTier):
    """Images on a Redis-compatible server.

    Calls may run beside each other; each image is stored, replaced and removed by one script on the server. Whatever
    happens to the server, calls answer FAILED, MISSING or False and do not raise.

    Args:
        context: names and fingerprint.
        config: settings.
    """

    def __init__(self, context: TierContext, config: RedisConfig) -> None:
        """Open the images of `context.fingerprint`.

        Raises:
            ConfigError: settings that do not work, or images too large for a Redis server.
            TierUnavailable: the server does not answer or refuses.
        """
        _refuse_large_images(context)
        self._batch_bytes = int(config.batch)
        self._is_closed = False
        self._must_list = False
        self._own = OwnServer(config.own_server) if config.own_server is not None else None
        link = Link(
            config,
            context.clock,
            tier_name=context.tier_name,
            socket=self._own.socket if self._own else "",
        )
        keys = Keyspace(config.prefix, context.fingerprint)
        self._store = Store(link, keys, capacity_bytes=int(config.capacity))
        try:
            self._open(context, int(config.capacity))
        except (Unreachable, ServerError) as error:
            self.close()
            msg = f"redis tier {context.tier_name!r} at {link.place}: {error}"
            raise TierUnavailable(msg) from error

    @classmethod
    def open(cls, context: TierContext, config: RedisConfig) -> "RedisTier":
        """Open a tier. Reads headers only if the cap was lowered, never payloads."""
        return cls(context, config)

    def _open(self, context: TierContext, capacity_bytes: int) -> None:
        before = self._store.open()
        name, place = context.tier_name, self._store.link.place
        if before not in {-1, capacity_bytes}:
            _log.warning(
                "redis_capacity_changed tier=%s server=%s before_bytes=%d now_bytes=%d",
                name,
                place,
                before,
                capacity_bytes,
            )
        num_swept = self._store.sweep()
        num_dropped = self._fit(context)
        if num_swept or num_dropped:
            _log.warning(
                "redis_opened tier=%s num_unlisted=%d num_dropped=%d", name, num_swept, num_dropped
            )
        self._warn_of_eviction(name)

    def _fit(self, context: TierContext) -> int:
        """Remove the least valuable images beyond a cap that was lowered; return how many."""
        missing = self._store.usage.used_bytes - self._store.usage.capacity_bytes
        if missing <= 0:
            return 0
        records = list(self._records())
        victims: list[str] = []
        for record in reversed(context.by_value(records)):
            if missing <= 0:
                break
            missing -= charge_of(len(record.header), record.num_bytes)
            victims.append(field_of(record.key))
        return sum(self._store.drop(victims))

    def _warn_of_eviction(self, tier_name: str) -> None:
        reply = self._store.link.send([("CONFIG", "GET", "maxmemory-policy")])[0]
        policy = "" if isinstance(reply, redis.RedisError) else str(reply)
        if "allkeys" in policy:
            _log.warning(
                "redis_evicts tier=%s: maxmemory-policy is allkeys-...; the server may drop accounting and images; "
                "use noeviction or volatile-lru",
                tier_name,
            )

    @property
    @override
    def capabilities(self) -> TierCapabilities:
        return _CAPABILITIES

    # ---- put ---------------------------------------------------------------------------------------

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        self._require_open()
        results: list[PutResult] = []
        for group in self._groups(items):
            results += self._put_group(group)
        return results

    def _put_group(self, images: Sequence[Image]) -> list[PutResult]:
        def failed(message: str) -> list[PutResult]:
            return [PutResult(status=PutStatus.FAILED, message=message)] * len(images)

        return self._guard(lambda: self._put(images), failed)

    def _groups(self, items: Sequence[PutItem]) -> Iterator[list[Image]]:
        """Cut a batch so that no group is too large or names a key twice."""
        group: list[Image] = []
        num_bytes = 0
        for item in items:
            image = _image(item)
            is_known = any(image.field == other.field for other in group)
            if group and (is_known or num_bytes + image.num_value_bytes > self._batch_bytes):
                yield group
                group, num_bytes = [], 0
            group.append(image)
            num_bytes += image.num_value_bytes
        if group:
            yield group

    def _put(self, images: Sequence[Image]) -> list[PutResult]:
        found = self._store.find([image.field for image in images])
        free = self._store.usage.capacity_bytes - self._store.usage.used_bytes
        results: list[PutResult | None] = []
        sent: list[Image] = []
        for image, packed in zip(images, found, strict=True):
            old = read_entry(packed) if packed is not None else None
            more = image.charge - (old.charge if old else 0)
            if packed is not None and without_number(packed) == image.entry():
                results.append(PutResult(status=PutStatus.STORED))
            elif image.num_value_bytes > MAX_VALUE_BYTES:
                message = f"an image of {image.num_value_bytes} B; {MAX_VALUE_BYTES} B at most"
                results.append(PutResult(status=PutStatus.FAILED, message=message))
            elif more > max(free, 0):
                results.append(self._full())
            else:
                free -= more
                results.append(None)
                sent.append(image)
        answers = iter(self._store.write(sent) if sent else [])
        return [result or self._put_result(next(answers)) for result in results]

    def _put_result(self, answer: int | redis.RedisError) -> PutResult:
        if isinstance(answer, redis.RedisError):
            status = PutStatus.FULL if _is_out_of_memory(answer) else PutStatus.FAILED
            return PutResult(status=status, message=str(answer))
        if answer == scripts.DONE:
            return PutResult(status=PutStatus.STORED)
        if answer == scripts.FULL:
            return self._full()
        return PutResult(status=PutStatus.FAILED, message="the server lost the value or its books")

    def _full(self) -> PutResult:
        usage = self._store.usage
        message = f"{usage.used_bytes} B of {usage.capacity_bytes} B are used"
        return PutResult(status=PutStatus.FULL, message=message)

    # ---- read --------------------------------------------------------------------------------------

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        self._require_open()
        results: list[ReadResult] = []
        for group in self._read_groups(items):
            results += self._read_group(group)
        return results

    def _read_group(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        def failed(message: str) -> list[ReadResult]:
            return [ReadResult(status=ReadStatus.FAILED, message=message)] * len(items)

        return self._guard(lambda: self._read(items), failed)

    def _read_groups(self, items: Sequence[ReadItem]) -> Iterator[list[ReadItem]]:
        group: list[ReadItem] = []
        num_bytes = 0
        for item in items:
            if group and num_bytes + item.buffer.nbytes > self._batch_bytes:
                yield group
                group, num_bytes = [], 0
            group.append(item)
            num_bytes += item.buffer.nbytes
        if group:
            yield group

    def _read(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        fields = [field_of(item.key) for item in items]
        found = self._store.read(fields)
        damaged: dict[str, bytes] = {}
        results = []
        for item, field, (entry, value) in zip(items, fields, found, strict=True):
            result = _read_result(item, field, entry, value)
            is_lost = result.status in {ReadStatus.MISSING, ReadStatus.CORRUPT}
            if is_lost and entry is not None:
                damaged[field] = without_number(entry)
            results.append(result)
        self._guard(lambda: self._store.drop(damaged, damaged.values()), lambda _message: [])
        return results

    # ---- the rest ----------------------------------------------------------------------------------

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        self._require_open()
        fields = [field_of(key) for key in keys]
        nothing: list[bytes | None] = [None] * len(keys)
        found = self._guard(lambda: self._store.find(fields) if fields else [], lambda _: nothing)
        return [packed is not None and read_entry(packed) is not None for packed in found]

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        self._require_open()
        fields = [field_of(key) for key in keys]
        return self._guard(lambda: self._store.drop(fields), lambda _: self._not_deleted(len(keys)))

    def _not_deleted(self, num_keys: int) -> list[bool]:
        """What could not be removed is still there: the core hears of it again when the server is back."""
        self._must_list = True
        return [False] * num_keys

    @override
    def usage(self) -> TierUsage:
        self._require_open()
        usage = self._store.usage
        return TierUsage(
            capacity_bytes=max(usage.capacity_bytes, usage.used_bytes),
            used_bytes=usage.used_bytes,
            num_images=usage.num_images,
        )

    @override
    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        return charge_of(header_bytes, payload_bytes)

    @override
    def check(self) -> list[str]:
        self._require_open()
        return self._guard(self._store.check, lambda message: [message])

    @override
    def records(self) -> Iterator[ImageRecord]:
        self._require_open()
        return self._records()

    def _records(self) -> Iterator[ImageRecord]:
        try:
            entries = sorted(self._store.entries(), key=lambda pair: pair[1].number)
        except (Unreachable, ServerError) as error:
            raise TierUnavailable(str(error)) from error
        for field, entry in entries:
            key = key_of(field)
            if key is not None:
                yield entry.record(key)

    @override
    def changes(self, cursor: bytes, limit: int) -> TierChanges:
        self._require_open()
        lists_all = self._must_list and bool(cursor)

        def look() -> TierChanges:
            found = changes_since(self._store, cursor, limit=limit, lists_all=lists_all)
            self._must_list = self._must_list and not lists_all
            return found

        return self._guard(look, lambda _: TierChanges(cursor=cursor))

    @override
    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._store.link.close()
        if self._own is not None:
            self._own.stop(self._store.link.client_name)

    def _guard(self, call: Callable[[], T], otherwise: Callable[[str], T]) -> T:
        """Return what a call returns; `otherwise` of the reason if the server does not answer or refuses."""
        try:
            return call()
        except (Unreachable, ServerError) as error:
            return otherwise(str(error))

    def _require_open(self) -> None:
        if self._is_closed:
            raise TierClosed("the redis tier is closed")


def _refuse_large_images(context: TierContext) -> None:
    largest = max(context.page_image_bytes, context.state_image_bytes)
    if largest_value_bytes(largest) > MAX_VALUE_BYTES:
        msg = (
            f"redis tier {context.tier_name!r}: an image of model {context.model_name!r} has {largest} bytes, a value "
            f"of a Redis server {MAX_VALUE_BYTES} at most; use another kind of tier for this model"
        )
        raise ConfigError(msg)


def _image(item: PutItem) -> Image:
    field, header, payload = field_of(item.key), bytes(item.header), _flat(item.payload)
    return Image(field, header, payload, checksum(field, header, payload))


def _read_result(item: ReadItem, field: str, entry: bytes | None, value: Any) -> ReadResult:  # noqa: ANN401
    if isinstance(value, redis.RedisError) and not _is_wrong_type(value):
        return ReadResult(status=ReadStatus.FAILED, message=str(value))
    if value is None or entry is None:
        return ReadResult(status=ReadStatus.MISSING)
    is_whole = not isinstance(value, redis.RedisError) and read_entry(entry) is not None
    found = read_value(field, value) if is_whole else None
    if found is None:
        message = f"{field}: the stored bytes are not those that were put"
        return ReadResult(status=ReadStatus.CORRUPT, message=message)
    header, payload = found
    if payload.nbytes != item.buffer.nbytes:
        message = f"buffer of {item.buffer.nbytes} bytes for an image of {payload.nbytes} bytes"
        return ReadResult(status=ReadStatus.FAILED, message=message)
    if payload.nbytes:
        item.buffer.cast("B")[:] = payload
    return ReadResult(status=ReadStatus.READ, header=header)


def _flat(buffer: memoryview) -> memoryview:
    """Return a buffer as bytes in one dimension (`cast` refuses empty buffers)."""
    return buffer.cast("B") if buffer.nbytes else memoryview(b"")


def _is_out_of_memory(error: redis.RedisError) -> bool:
    return isinstance(error, redis.OutOfMemoryError) or "OOM" in str(error)


def _is_wrong_type(error: redis.RedisError) -> bool:
    return "WRONGTYPE" in str(error)
