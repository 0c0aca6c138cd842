"""One lower tier as the core uses it: argument checks, error translation, counting. Knows nothing about contents.

Every call of a plugin's tier goes through here, on a transfer thread, but `stored_bytes`. Whatever the tier does, the
caller gets one named result per item.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final, TypeVar

import structlog

from ninfer.api import (
    Clock,
    ImageKey,
    ImageRecord,
    PutItem,
    PutResult,
    PutStatus,
    ReadItem,
    ReadResult,
    ReadStatus,
    StorageTier,
    TierChanges,
    TierUsage,
)
from ninfer.cache.tier_answers import (
    allocated,
    byte_count,
    changes_of,
    put_results,
    read_results,
    record_list,
    run_in_place,
    sentences,
    truths,
    usage_of,
)
from ninfer.cache.tier_counters import TierCounters
from ninfer.core.plugin_guard import PluginGuard, describe, is_interrupt
from ninfer.core.plugin_identity import PluginIdentity
from ninfer.obs.clock import SystemClock

_log = structlog.get_logger(__name__)
T = TypeVar("T")

MANY_LOST: Final = 8.0
"""Images missing, damaged or refused that make a tier a problem rather than bad luck."""
_FORGIVEN: Final = 0.25
"""Of those, what a good image makes up for: a tier that fails with one image in five or more stands out."""
_JUDGED_BY_IMAGE: Final = ("put", "read_into")
"""Operations that answer for each image: that they answer does not say that the tier works."""
_PLENTY_IMAGES: Final = 1000
"""Room for so many more of an image, and yet refused: that is no room in pieces too small for it."""
_MAX_SIZES: Final = 4096
_CALL_BUDGET_S: Final = 1.0


class TierHandle:
    """Safe access to one storage tier.

    Args:
        name: instance name.
        tier: the plugin's tier.
        plugin: plugin that offers it, for the log.
        distribution: distribution and version that ship it, for the log.
        clock: source of time, None for the system's.
        call_budget_s: longest time of a call on the engine thread.
    """

    def __init__(
        self,
        name: str,
        tier: StorageTier,
        *,
        plugin: str = "",
        distribution: str = "",
        clock: Clock | None = None,
        call_budget_s: float = _CALL_BUDGET_S,
    ) -> None:
        """Wrap a tier that is open."""
        self.name = name
        self.identity = PluginIdentity(
            family="tier", name=name, plugin=plugin, distribution=distribution
        )
        self.counters = TierCounters()
        self.capabilities = tier.capabilities
        self.guard = PluginGuard(
            self.identity,
            clock or SystemClock(),
            budget_s=call_budget_s,
            instead="images count with their plain size",
        )
        self._tier = tier
        self._sizes: dict[tuple[int, int], int] = {}
        self._problems: dict[str, str] = {}
        self._lost = 0.0
        self._refused = 0.0
        self._log = _log.bind(tier=name, plugin=plugin, distribution=distribution)

    def problems(self) -> list[str]:
        """Return one sentence per thing that is wrong with the tier now; from any thread."""
        found = [
            f"{self.identity.text} failed: {operation}: {problem}; what it should hold counts as missing"
            for operation, problem in list(self._problems.items())
        ]
        counters = self.counters
        if self._lost >= MANY_LOST:
            num_lost = counters.num_missing + counters.num_corrupt
            found.append(f"{self.identity.text} loses images that it had stored, {num_lost} so far")
        if self._refused >= MANY_LOST:
            found.append(
                f"{self.identity.text} refuses images that should fit its capacity, "
                f"{counters.num_full} so far"
            )
        return [*found, self.guard.problem] if self.guard.problem else found

    def usage(self) -> TierUsage:
        """Return the tier's usage; a capacity of nothing if it fails."""
        unknown = TierUsage(capacity_bytes=0, used_bytes=0, num_images=0)
        usage = self._guard("usage", lambda: usage_of(self._tier.usage()), unknown)
        self.counters.events = dict(usage.events)
        return usage

    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        """Return how much of its capacity one image takes. Asked once per pair of lengths, so always the same."""
        key = (header_bytes, payload_bytes)
        size = self._sizes.get(key)
        if size is None:
            if len(self._sizes) >= _MAX_SIZES:
                self._sizes.clear()
            size = self._sizes[key] = self.guard.ask(
                "stored_bytes", self._stored_bytes, _plain_size, header_bytes, payload_bytes
            )
        return size

    def _stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        return byte_count("stored_bytes", self._tier.stored_bytes(header_bytes, payload_bytes))

    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        """Store images; an exception or a wrong answer is FAILED for each, and what was stored by then is removed."""
        results = self._guard("put", lambda: put_results(self._tier.put(items), len(items)), None)
        if results is None:
            problem = self._problems.get("put", "")
            results = [PutResult(status=PutStatus.FAILED, message=problem) for _ in items]
            if not self.capabilities.shared:  # there an image may be somebody else's
                self.delete([item.key for item in items])
        else:
            self._note_failed("put", [r.message for r in results if r.status is PutStatus.FAILED])
        are_stored = [result.status is PutStatus.STORED for result in results]
        sizes = [item.payload.nbytes for item in items]
        self._count_stored(are_stored.count(True), sum(compress(sizes, are_stored)))
        if not all(are_stored):
            for result in results:
                self._count_refused(result.status)
            self._judge_refusals(items, results)
        return results

    def _judge_refusals(self, items: Sequence[PutItem], results: Sequence[PutResult]) -> None:
        """A tier that refuses while it claims room for many times as much does not tell the truth about its capacity."""
        usage = self.usage()
        if self.capabilities.shared:  # others take room
            return
        claimed = usage.capacity_bytes - usage.used_bytes
        for item, result in zip(items, results, strict=True):
            is_refused = result.status is PutStatus.FULL
            if is_refused and claimed > _PLENTY_IMAGES * max(item.payload.nbytes, 1):
                self._refused = 2 * MANY_LOST

    def _count_stored(self, num_images: int, num_bytes: int) -> None:
        self._refused = max(0.0, self._refused - _FORGIVEN * num_images)
        self.counters.num_written += num_images
        self.counters.written_bytes += num_bytes

    def _count_refused(self, status: PutStatus) -> None:
        if status is PutStatus.FULL:
            self._refused = self._worse(self._refused)
            self.counters.num_full += 1
        elif status is PutStatus.FAILED:
            self.counters.num_failed += 1

    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        """Read images; an exception or a wrong answer is FAILED for each."""
        results = self._guard(
            "read_into", lambda: read_results(self._tier.read_into(items), len(items)), None
        )
        if results is None:
            problem = self._problems.get("read_into", "")
            return [ReadResult(status=ReadStatus.FAILED, message=problem) for _ in items]
        failed = [result.message for result in results if result.status is ReadStatus.FAILED]
        self._note_failed("read_into", failed)
        statuses = [result.status for result in results]
        if statuses.count(ReadStatus.READ) < len(statuses):
            self.usage()
        return results

    def count_good(self, num_images: int, num_bytes: int) -> None:
        """Count images read whole, by any way, and their payload bytes."""
        self._lost = max(0.0, self._lost - _FORGIVEN * num_images)
        self.counters.num_read += num_images
        self.counters.read_bytes += num_bytes

    def count_lost(self, status: ReadStatus) -> None:
        """Count an image that could not be read, by any way; `status` is not READ."""
        if status is ReadStatus.MISSING:
            self._lost = self._worse(self._lost)
            self.counters.num_missing += 1
        elif status is ReadStatus.CORRUPT:
            self._lost = min(2 * MANY_LOST, self._lost + 1.0)
            self.counters.num_corrupt += 1
        else:
            self.counters.num_failed += 1

    def _worse(self, score: float) -> float:
        """Return a score after one more loss. On a shared tier others take room and images: no fault of its own."""
        return score if self.capabilities.shared else min(2 * MANY_LOST, score + 1.0)

    def view_run(self, keys: Sequence[ImageKey]) -> tuple[Sequence[bytes], memoryview] | None:
        """Return headers and payloads in place of the first images that lie one behind the other.

        None if the first is missing, in pieces or failing.
        """
        return self._guard(
            "view_run", lambda: run_in_place(self._tier.view_run(keys), len(keys)), None
        )

    def allocate(self, key: ImageKey, header: bytes, payload_bytes: int) -> memoryview | None:
        """Take room for an image in place, None if there is none in one piece."""
        return self._guard(
            "allocate",
            lambda: allocated(self._tier.allocate(key, header, payload_bytes), payload_bytes),
            None,
        )

    def commit(self, key: ImageKey, num_bytes: int) -> bool:
        """Make an allocated image visible; tell whether that worked."""

        def call() -> bool:
            self._tier.commit(key)
            return True

        is_committed = self._guard("commit", call, otherwise=False)
        if is_committed:
            self._count_stored(1, num_bytes)
        else:
            self._count_refused(PutStatus.FAILED)
        return is_committed

    def delete(self, keys: Sequence[ImageKey]) -> None:
        """Remove images."""
        nothing: list[bool] = []
        self._guard("delete", lambda: self._tier.delete(keys), nothing)

    def records(self) -> list[ImageRecord]:
        """List what is stored, nothing if the tier cannot say."""
        if not self.capabilities.enumerable:
            return []
        return self._guard("records", lambda: record_list(self._tier.records()), [])

    def changes(self, cursor: bytes, limit: int) -> TierChanges:
        """Tell what other processes stored and deleted since a place in time; nothing if the tier fails."""
        nothing = TierChanges(cursor=cursor)
        call = self._tier.changes
        return self._guard("changes", lambda: changes_of(call(cursor, limit)), nothing)

    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        """Tell for each image whether the tier holds it; yes if the tier fails."""
        held = [True] * len(keys)
        call = self._tier.contains
        return self._guard("contains", lambda: truths(call(keys), len(keys)), held)

    def check(self) -> list[str]:
        """Return what the tier finds wrong with itself."""
        return self._guard("check", lambda: sentences(self._tier.check()), ["check failed"])

    def close(self) -> None:
        """Close the tier; one that does not return is left behind."""
        self.guard.close(self._tier.close)

    def _guard(self, operation: str, call: Callable[[], T], otherwise: T) -> T:
        try:
            answer = call()
        except BaseException as error:
            if is_interrupt(error):
                raise
            self._note(operation, describe(error))
            return otherwise
        if operation not in _JUDGED_BY_IMAGE:
            self._note_works(operation)
        return answer

    def _note_works(self, operation: str) -> None:
        if self._problems.pop(operation, None) is not None:
            self._log.info("tier_works_again", operation=operation)

    def _note(self, operation: str, problem: str) -> None:
        is_news = operation not in self._problems
        self._problems[operation] = problem
        self.counters.num_failed += 1
        if is_news:
            self._log.warning("tier_failed", operation=operation, problem=problem)

    def _note_failed(self, operation: str, messages: Sequence[str]) -> None:
        """Take over what the tier itself called FAILED; counted where each image is."""
        if not messages:
            self._note_works(operation)
            return
        if operation not in self._problems:
            self._log.warning("tier_failed", operation=operation, problem=messages[0])
        self._problems[operation] = messages[0] or "an image failed, the tier does not say why"


def _plain_size(header_bytes: int, payload_bytes: int) -> int:
    return header_bytes + payload_bytes
