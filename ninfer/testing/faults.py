"""Storage that fails on demand, and tiers that are faulty, slow or crash. For tests of tiers and of what uses them."""

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence

from typing_extensions import override

from ninfer.api import (
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
    TierUsage,
)


class Crashed(BaseException):
    """The process died here. Not an Exception, so that no tier can catch it by accident."""


def _nothing() -> None:
    """Leave no trace."""


class StorageFaults:
    """Decides at each change of some storage whether it succeeds, fails or is where the process dies.

    A storage layer under test calls `change` before it writes, renames, truncates, flushes or deletes. After the
    crash every further change crashes too, as nothing runs in a dead process.

    Attributes:
        num_changes: changes so far.
    """

    def __init__(
        self,
        *,
        crash_at: int | None = None,
        error_at: int | None = None,
        error: int = errno.EIO,
    ) -> None:
        """Choose what fails.

        Args:
            crash_at: number of the change, from 1, at which the process dies; None for never.
            error_at: number of the change that raises OSError; None for never.
            error: number of that OSError.
        """
        self.num_changes = 0
        self._crash_at = crash_at
        self._error_at = error_at
        self._error = error
        self._is_dead = False
        self._at_death: list[Callable[[], object]] = []

    def change(self, partly: Callable[[], object] = _nothing) -> None:
        """Count a change that is about to happen.

        Args:
            partly: does half of the change; called before it fails. What a half-done write leaves behind.

        Raises:
            Crashed: the process dies here, or is dead already.
            OSError: this change fails.
        """
        if self._is_dead:
            raise Crashed
        self.num_changes += 1
        if self.num_changes == self._crash_at:
            partly()
            self._is_dead = True
            raise Crashed
        if self.num_changes == self._error_at:
            partly()
            raise OSError(self._error, "injected")

    def at_death(self, release: Callable[[], object]) -> None:
        """Register what the operating system does when a process dies: close files, drop locks."""
        self._at_death.append(release)

    def kill(self) -> None:
        """Let the process be dead from now on; releases what it held."""
        self._is_dead = True
        while self._at_death:
            self._at_death.pop()()


class WrappedTier(StorageTier):
    """A tier that hands every call on to another one. Base of the wrappers below, and of metrics or throttles."""

    def __init__(self, inner: StorageTier) -> None:
        """Wrap a tier; `close` closes it."""
        self.inner = inner

    @property
    @override
    def capabilities(self) -> TierCapabilities:
        return self.inner.capabilities

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        return self.inner.put(items)

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        return self.inner.read_into(items)

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        return self.inner.contains(keys)

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        return self.inner.delete(keys)

    @override
    def usage(self) -> TierUsage:
        return self.inner.usage()

    @override
    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        return self.inner.stored_bytes(header_bytes, payload_bytes)

    @override
    def check(self) -> list[str]:
        return self.inner.check()

    @override
    def close(self) -> None:
        self.inner.close()

    @override
    def records(self) -> Iterator[ImageRecord]:
        return self.inner.records()

    @override
    def changes(self, cursor: bytes, limit: int) -> TierChanges:
        return self.inner.changes(cursor, limit)

    @override
    def view(self, key: ImageKey) -> tuple[bytes, memoryview] | None:
        return self.inner.view(key)

    @override
    def view_run(self, keys: Sequence[ImageKey]) -> tuple[Sequence[bytes], memoryview] | None:
        return self.inner.view_run(keys)

    @override
    def allocate(self, key: ImageKey, header: bytes, payload_bytes: int) -> memoryview | None:
        return self.inner.allocate(key, header, payload_bytes)

    @override
    def commit(self, key: ImageKey) -> None:
        self.inner.commit(key)


class FaultyTier(WrappedTier):
    """A tier whose storage fails now and then: each image put or read is one change of `faults`.

    An injected OSError becomes FAILED for that image, before anything happened to it. A tier that keeps its
    promises keeps all of them behind this wrapper.
    """

    def __init__(self, inner: StorageTier, faults: StorageFaults) -> None:
        """Wrap a tier.

        Args:
            inner: the tier that does the work.
            faults: decides which images fail.
        """
        super().__init__(inner)
        self._faults = faults

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        results = self.inner.put([])
        for item in items:
            try:
                self._faults.change()
            except OSError as error:
                results.append(PutResult(status=PutStatus.FAILED, message=str(error)))
            else:
                results += self.inner.put([item])
        return results

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        results = self.inner.read_into([])
        for item in items:
            try:
                self._faults.change()
            except OSError as error:
                results.append(ReadResult(status=ReadStatus.FAILED, message=str(error)))
            else:
                results += self.inner.read_into([item])
        return results


class SlowTier(WrappedTier):
    """A tier that takes its time: `wait` is called before and after every call that may block on I/O."""

    def __init__(self, inner: StorageTier, wait: Callable[[], object]) -> None:
        """Wrap a tier.

        Args:
            inner: the tier that does the work.
            wait: moves a fake clock, blocks on an event, or sleeps.
        """
        super().__init__(inner)
        self._wait = wait

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        self._wait()
        results = self.inner.put(items)
        self._wait()
        return results

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        self._wait()
        results = self.inner.read_into(items)
        self._wait()
        return results

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        self._wait()
        return self.inner.contains(keys)

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        self._wait()
        results = self.inner.delete(keys)
        self._wait()
        return results


class CrashingTier(WrappedTier):
    """A tier in a process that dies before or after one of its changes, never inside one.

    For tiers whose storage has no place to call `StorageFaults.change` from. An injected OSError becomes FAILED
    before an image is put, and is lost after it.
    """

    def __init__(
        self, inner: StorageTier, faults: StorageFaults, release: Callable[[], object] | None = None
    ) -> None:
        """Wrap a tier.

        Args:
            inner: the tier that does the work.
            faults: decides where the process dies; each image put or deleted is two changes.
            release: what the operating system does for a dead process, best without flushing; closes the
                wrapped tier if not given.
        """
        super().__init__(inner)
        self._faults = faults
        faults.at_death(release or inner.close)

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        results = self.inner.put([])
        for item in items:
            try:
                self._faults.change()
            except OSError as error:
                results.append(PutResult(status=PutStatus.FAILED, message=str(error)))
                continue
            results += self.inner.put([item])
            self._after()
        return results

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        results = self.inner.delete([])
        for key in keys:
            self._after()
            results += self.inner.delete([key])
            self._after()
        return results

    def _after(self) -> None:
        """Die here or go on; an error has nobody to be told to."""
        with contextlib.suppress(OSError):
            self._faults.change()
