"""One lower tier as the core uses it: argument checks, error translation, counting. Knows nothing about contents.

Every call of a plugin's tier goes through here, on a transfer thread. Whatever the tier does, the caller gets one
named result per item.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from ninfer.api import (
    ImageKey,
    ImageRecord,
    NinferError,
    PutItem,
    PutResult,
    PutStatus,
    ReadItem,
    ReadResult,
    ReadStatus,
    StorageTier,
    TierUsage,
)

_log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class TierCounters:
    """What a tier did since the start; written by its threads, read by anyone.

    Attributes:
        num_read: images read whole.
        num_missing: images that were not there any more.
        num_corrupt: images whose bytes were wrong.
        num_failed: I/O errors and exceptions.
        num_written: images stored.
        num_full: images refused for lack of room.
        num_deadline: transfers given up because the tier did not answer in time.
        read_bytes: payload bytes read.
        written_bytes: payload bytes stored.
        read_s: seconds spent reading.
        write_s: seconds spent writing.
    """

    num_read: int = 0
    num_missing: int = 0
    num_corrupt: int = 0
    num_failed: int = 0
    num_written: int = 0
    num_full: int = 0
    num_deadline: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    read_s: float = 0.0
    write_s: float = 0.0


class TierHandle:
    """Safe access to one storage tier.

    Args:
        name: instance name.
        tier: the plugin's tier.
        plugin: distribution that ships it, for the log.
    """

    def __init__(self, name: str, tier: StorageTier, *, plugin: str = "") -> None:
        """Wrap a tier that is open."""
        self.name = name
        self.counters = TierCounters()
        self.problem = ""
        self._tier = tier
        self._log = _log.bind(tier=name, plugin=plugin)
        self.capabilities = tier.capabilities

    def usage(self) -> TierUsage:
        """Return the tier's usage; what it last said if it fails now."""
        unknown = TierUsage(capacity_bytes=0, used_bytes=0, num_images=0)
        return self._guard("usage", self._tier.usage, unknown)

    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        """Return how much of its capacity one image takes."""
        return self._tier.stored_bytes(header_bytes, payload_bytes)

    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        """Store images; an exception or a wrong answer is FAILED for each."""
        nothing: list[PutResult] = []
        results = self._guard("put", lambda: self._tier.put(items), nothing)
        if len(results) != len(items):
            self._note("put", f"{len(results)} results for {len(items)} items")
            results = [PutResult(status=PutStatus.FAILED, message=self.problem) for _ in items]
        for item, result in zip(items, results, strict=True):
            self._count_put(result.status, item.payload.nbytes)
        return results

    def _count_put(self, status: PutStatus, num_bytes: int) -> None:
        if status is PutStatus.STORED:
            self.counters.num_written += 1
            self.counters.written_bytes += num_bytes
        elif status is PutStatus.FULL:
            self.counters.num_full += 1
        else:
            self.counters.num_failed += 1

    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        """Read images; an exception or a wrong answer is FAILED for each."""
        nothing: list[ReadResult] = []
        results = self._guard("read_into", lambda: self._tier.read_into(items), nothing)
        if len(results) != len(items):
            self._note("read_into", f"{len(results)} results for {len(items)} items")
            results = [ReadResult(status=ReadStatus.FAILED, message=self.problem) for _ in items]
        return results

    def count_read(self, status: ReadStatus, num_bytes: int) -> None:
        """Count one image read, by any way."""
        if status is ReadStatus.READ:
            self.counters.num_read += 1
            self.counters.read_bytes += num_bytes
        elif status is ReadStatus.MISSING:
            self.counters.num_missing += 1
        elif status is ReadStatus.CORRUPT:
            self.counters.num_corrupt += 1
        else:
            self.counters.num_failed += 1

    def view(self, key: ImageKey) -> tuple[bytes, memoryview] | None:
        """Return header and payload in place, None if missing or failing."""
        return self._guard("view", lambda: self._tier.view(key), None)

    def allocate(self, key: ImageKey, header: bytes, payload_bytes: int) -> memoryview | None:
        """Take room for an image in place, None if there is none."""
        buffer = self._guard(
            "allocate", lambda: self._tier.allocate(key, header, payload_bytes), None
        )
        if buffer is not None and buffer.nbytes != payload_bytes:
            self._note("allocate", f"gave {buffer.nbytes} B for {payload_bytes} B")
            return None
        return buffer

    def commit(self, key: ImageKey, num_bytes: int) -> bool:
        """Make an allocated image visible; tell whether that worked."""

        def call() -> bool:
            self._tier.commit(key)
            return True

        is_committed = self._guard("commit", call, otherwise=False)
        self._count_put(PutStatus.STORED if is_committed else PutStatus.FAILED, num_bytes)
        return is_committed

    def delete(self, keys: Sequence[ImageKey]) -> None:
        """Remove images."""
        nothing: list[bool] = []
        self._guard("delete", lambda: self._tier.delete(keys), nothing)

    def records(self) -> list[ImageRecord]:
        """List what is stored, nothing if the tier cannot say."""
        if not self.capabilities.enumerable:
            return []
        return self._guard("records", lambda: list(self._tier.records()), [])

    def check(self) -> list[str]:
        """Return what the tier finds wrong with itself."""
        return self._guard("check", self._tier.check, ["check failed"])

    def close(self) -> None:
        """Close the tier."""
        self._guard("close", self._tier.close, None)

    def _guard(self, operation: str, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except NinferError as error:
            self._note(operation, str(error))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; it costs a miss
            self._note(operation, f"{type(error).__name__}: {error}")
        return otherwise

    def _note(self, operation: str, problem: str) -> None:
        self.problem = f"{operation}: {problem}"
        self.counters.num_failed += 1
        self._log.warning("tier_failed", operation=operation, problem=problem)
