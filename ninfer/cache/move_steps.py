"""How batches of images are copied, for each kind of way. Runs on worker threads; keeps no state but buffers."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice
from operator import not_
from typing import Final, TypeVar

from typing_extensions import TypeVarTuple, Unpack

from ninfer.api import ImageKind, PutItem, PutStatus, ReadItem, ReadResult, ReadStatus
from ninfer.cache.device_guard import DONE, GIVEN_UP, DeviceGuard, StepResult, copy_out
from ninfer.cache.move import NUM_LANES, Batch, Move, bytes_of, pieces_of
from ninfer.cache.pace import Pace
from ninfer.cache.processors import own_processors
from ninfer.cache.tier_handle import TierHandle
from ninfer.core.step import DeviceCopier

Report = Callable[[Batch, list[StepResult]], None]
"""Told of a batch that is done, and how each of its moves ended."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PIECE_BYTES: Final = 1 << 20
"""Images read before they are copied on: few enough that the copy finds them in the processor's cache."""

_LANE_BYTES: Final = 3 << 20
"""What one of them reads at once: each piece costs Python, which the other thread waits for."""

_SMALL_BYTES: Final = 128 << 10
"""Smaller images are read on one thread: what they cost is Python, which a second thread would wait for."""


class MoveSteps:
    """Copies batches between the device and tiers, and from tier to tier.

    Args:
        handles: lower tiers; index 1 is the first.
        copier: access to device memory.
        pace: between pieces of a batch.
    """

    def __init__(self, handles: Sequence[TierHandle], copier: DeviceCopier, pace: Pace) -> None:
        """Keep the two ends."""
        self._handles = list(handles)
        self._pace = pace
        self._copier = copier
        self._buffers = threading.local()
        self._count_lock = threading.Lock()

    def run(self, batches: Sequence[Batch], report: Report) -> None:
        """Copy batches that share source and target, together.

        Args:
            batches: their locks are taken around every touch of device memory, which is left alone for those that are
                cancelled.
            report: called once for each batch, as soon as it is done, by whichever thread did it.
        """
        first = batches[0].moves[0]
        if first.target == 0:
            self._restore(batches, report)
            return
        moves = [move for batch in batches for move in batch.moves]
        if first.source == 0:
            guards = [
                guard
                for batch in batches
                for guard in [DeviceGuard(self._copier, batch)] * len(batch.moves)
            ]
            results = self._spill(moves, guards)
        else:
            results = self._clean(moves)
        rest = iter(results)
        for batch in batches:
            report(batch, list(islice(rest, len(batch.moves))))

    def undo(self, moves: Sequence[Move], results: Sequence[StepResult]) -> None:
        """Remove images that were written for moves nobody waits for any more."""
        written = [move for move, result in zip(moves, results, strict=True) if result is DONE]
        self.remove(written)

    def remove(self, moves: Sequence[Move]) -> None:
        """Remove from lower tiers what moves brought there, and room that was taken for it."""
        for move in moves:
            if move.target:
                self._handles[move.target - 1].delete([move.key])

    # ---- tier to device ----------------------------------------------------------------------------

    def _restore(self, batches: Sequence[Batch], report: Report) -> None:
        first = batches[0].moves[0]
        handle = self._handles[first.source - 1]
        is_shown = handle.capabilities.addressable
        if not is_shown and first.num_bytes >= _SMALL_BYTES and self._pace.is_alone:
            self._restore_in_lanes(handle, batches, report)
            return
        for batch in batches:
            guard = DeviceGuard(self._copier, batch)
            restored = (
                (self._restore_shown if is_shown else self._restore_held)(handle, piece, guard)
                for piece in pieces_of(batch.moves, _PIECE_BYTES)
            )
            report(batch, [result for results in restored for result in results])

    def _paced(self, work: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
        with self._pace.piece():
            return work(*arguments)

    def _restore_held(
        self, handle: TierHandle, moves: Sequence[Move], guard: DeviceGuard
    ) -> list[StepResult]:
        held = self._held(0, bytes_of(moves))
        return self._paced(self._restore_piece, handle, moves, held, guard)

    def _restore_in_lanes(
        self, handle: TierHandle, batches: Sequence[Batch], report: Report
    ) -> None:
        """Restore on two threads, each the piece that comes next: one reads while the other verifies and copies."""
        pieces = [
            (at, piece)
            for at, batch in enumerate(batches)
            for piece in pieces_of(batch.moves, _LANE_BYTES)
        ]
        num_lanes = min(NUM_LANES, len(pieces))
        num_left = Counter(at for at, _ in pieces)
        ended: list[list[StepResult]] = [[] for _ in pieces]
        problems: list[Exception] = []
        waiting = iter(range(len(pieces)))
        num_bytes = max(bytes_of(piece) for _, piece in pieces)

        def restore_pieces(lane: int, held: bytearray) -> None:
            # Once steps run, one thread copies.
            while lane == 0 or self._pace.is_alone:
                number = next(waiting, None)
                if number is None:
                    return
                at, piece = pieces[number]
                guard = DeviceGuard(self._copier, batches[at], lane)
                ended[number] = self._paced(self._restore_piece, handle, piece, held, guard)
                with self._count_lock:
                    num_left[at] -= 1
                    is_whole = not num_left[at]
                if is_whole:
                    own = (n for n, (of, _) in enumerate(pieces) if of == at)
                    report(batches[at], [result for n in own for result in ended[n]])

        def restore(lane: int, held: bytearray) -> None:
            try:
                with own_processors(lane, num_lanes):
                    restore_pieces(lane, held)
            except Exception as problem:  # noqa: BLE001 - raised again below, on the worker's thread
                problems.append(problem)

        helpers = [
            threading.Thread(target=restore, args=(n, self._held(n, num_bytes)), daemon=True)
            for n in range(1, num_lanes)
        ]
        for helper in helpers:
            helper.start()
        restore(0, self._held(0, num_bytes))
        for helper in helpers:
            helper.join()
        if problems:
            raise problems[0]

    def _restore_piece(
        self,
        handle: TierHandle,
        moves: Sequence[Move],
        held: bytearray,
        guard: DeviceGuard,
    ) -> list[StepResult]:
        if guard.is_cancelled:
            return [GIVEN_UP] * len(moves)
        sizes = [move.num_bytes for move in moves]
        buffers = _cut(held, sizes)
        items = [
            ReadItem(key=move.key, buffer=buffer)
            for move, buffer in zip(moves, buffers, strict=True)
        ]
        reads = handle.read_into(items)
        return self._deliver(handle, moves, reads, memoryview(held), guard)

    def _restore_shown(
        self, handle: TierHandle, moves: Sequence[Move], guard: DeviceGuard
    ) -> list[StepResult]:
        """Copy out of the tier's own memory, or by way of memory of this thread what it does not show."""
        results: list[StepResult] = []
        while len(results) < len(moves):
            rest = moves[len(results) :]
            shown = self._paced(self._restore_run, handle, rest, guard)
            results += shown or self._restore_held(handle, rest[:1], guard)
        return results

    def _restore_run(
        self, handle: TierHandle, moves: Sequence[Move], guard: DeviceGuard
    ) -> list[StepResult]:
        """Copy the first images, as many as the tier shows one behind the other; nothing if it does not show the first."""
        if guard.is_cancelled:
            return [GIVEN_UP] * len(moves)
        found = handle.view_run([move.key for move in moves])
        if found is None:
            return []
        headers, payloads = found
        shown = moves[: len(headers)]
        if payloads.nbytes == bytes_of(shown):
            reads = [ReadResult(status=ReadStatus.READ, header=header) for header in headers]
            return self._deliver(handle, shown, reads, payloads, guard)
        if len(shown) > 1:
            return self._restore_run(handle, moves[:1], guard)
        other = ReadResult(status=ReadStatus.CORRUPT, message="another length")
        return self._deliver(handle, shown, [other], payloads, guard)

    def _deliver(
        self,
        handle: TierHandle,
        moves: Sequence[Move],
        reads: Sequence[ReadResult],
        payloads: memoryview,
        guard: DeviceGuard,
    ) -> list[StepResult]:
        """Copy to the device what was read and is what it should be; payloads lie one behind the other."""
        are_good = [
            read.status is ReadStatus.READ and _is_expected(move, read.header)
            for move, read in zip(moves, reads, strict=True)
        ]
        results = [DONE] * len(moves)
        with self._count_lock:
            num_bytes = sum(move.num_bytes for move in compress(moves, are_good))
            handle.count_good(are_good.count(True), num_bytes)
            for at in compress(range(len(moves)), map(not_, are_good)):
                results[at] = self._count_lost(handle, reads[at])
        for first, end in _alike(moves, results):
            whole = payloads[: bytes_of(moves[:end])][bytes_of(moves[:first]) :]
            results[first:end] = [guard.copy_in(moves[first:end], whole)] * (end - first)
        return results

    @staticmethod
    def _count_lost(handle: TierHandle, read: ReadResult) -> StepResult:
        """Count an image that could not be read, or is another one than asked for, and say so."""
        status = ReadStatus.CORRUPT if read.status is ReadStatus.READ else read.status
        handle.count_lost(status)
        message = f"{handle.name}: {status.value} {read.message}".strip()
        return StepResult(outcome="source_lost", message=message)

    # ---- device to tier ----------------------------------------------------------------------------

    def _spill(self, moves: Sequence[Move], guards: Sequence[DeviceGuard]) -> list[StepResult]:
        handle = self._handles[moves[0].target - 1]
        if handle.capabilities.addressable:
            return [
                self._paced(self._spill_in_place, handle, move, guard)
                or self._spill_staged(handle, [move], [guard])[0]
                for move, guard in zip(moves, guards, strict=True)
            ]
        return self._spill_staged(handle, moves, guards)

    def _spill_staged(
        self, handle: TierHandle, moves: Sequence[Move], guards: Sequence[DeviceGuard]
    ) -> list[StepResult]:
        held = memoryview(self._held(0, bytes_of(moves)))
        results: list[StepResult] = []
        offset = 0
        for piece in pieces_of(moves, _PIECE_BYTES):
            for first, end in _alike(piece, [DONE] * len(piece)):
                at, num_bytes = len(results), bytes_of(piece[first:end])
                wanted = guards[at : at + end - first]
                part = held[offset : offset + num_bytes]
                results += self._paced(copy_out, piece[first:end], wanted, part)
                offset += num_bytes
        return self._put_paced(handle, moves, self._staging(moves), results)

    def _spill_in_place(
        self, handle: TierHandle, move: Move, guard: DeviceGuard
    ) -> StepResult | None:
        """Copy into the tier's own memory; None if it has no room in one piece."""
        buffer = handle.allocate(move.key, move.header.pack(), move.num_bytes)
        if buffer is None:
            return None
        result = guard.copy_out(move, buffer)
        if result is DONE and not handle.commit(move.key, move.num_bytes):
            result = StepResult(outcome="target_refused", message=f"{handle.name}: commit failed")
        if result is not DONE:
            handle.delete([move.key])
        return result

    # ---- tier to tier ------------------------------------------------------------------------------

    def _clean(self, moves: Sequence[Move]) -> list[StepResult]:
        """Copy from tier to tier, by way of memory of this thread.

        Never from the source's own memory: a batch that is given up loses its leases, and what then takes the place of an
        image there would be written to the target under that image's name.
        """
        source = self._handles[moves[0].source - 1]
        target = self._handles[moves[0].target - 1]
        buffers = self._staging(moves)
        items = [
            ReadItem(key=move.key, buffer=buffer)
            for move, buffer in zip(moves, buffers, strict=True)
        ]
        reads = self._paced(source.read_into, items)
        lost = StepResult(outcome="source_lost", message=f"{source.name}: unreadable")
        results = [
            DONE if read.status is ReadStatus.READ and _is_expected(move, read.header) else lost
            for move, read in zip(moves, reads, strict=True)
        ]
        return self._put_paced(target, moves, buffers, results)

    def _put_paced(
        self,
        handle: TierHandle,
        moves: Sequence[Move],
        payloads: Sequence[memoryview],
        results: list[StepResult],
    ) -> list[StepResult]:
        """Put all at once, or a piece at a time while steps run: a write of some megabytes is a long piece of work."""
        ended: list[StepResult] = []
        for piece in [moves] if self._pace.is_alone else pieces_of(moves, _PIECE_BYTES):
            first, end = len(ended), len(ended) + len(piece)
            ended += self._paced(self._put, handle, piece, payloads[first:end], results[first:end])
        return ended

    def _put(
        self,
        handle: TierHandle,
        moves: Sequence[Move],
        payloads: Sequence[memoryview],
        results: list[StepResult],
    ) -> list[StepResult]:
        ready = [at for at, result in enumerate(results) if result is DONE]
        items = [
            PutItem(key=moves[at].key, header=moves[at].header.pack(), payload=payloads[at])
            for at in ready
        ]
        for at, put in zip(ready, handle.put(items) if items else [], strict=True):
            if put.status is not PutStatus.STORED:
                message = f"{handle.name}: {put.status.value} {put.message}".strip()
                is_full = put.status is PutStatus.FULL
                results[at] = StepResult(outcome="target_refused", message=message, is_full=is_full)
        return results

    def _staging(self, moves: Sequence[Move]) -> list[memoryview]:
        """Return a buffer per move, from memory this thread keeps."""
        sizes = [move.num_bytes for move in moves]
        return _cut(self._held(0, sum(sizes)), sizes)

    def _held(self, lane: int, num_bytes: int) -> bytearray:
        """Return at least `num_bytes` of memory that this thread keeps for a lane."""
        lanes: dict[int, bytearray] = self._buffers.__dict__.setdefault("lanes", {})
        if len(lanes.get(lane, b"")) < num_bytes:
            lanes[lane] = bytearray(num_bytes)
        return lanes[lane]


def _alike(moves: Sequence[Move], results: Sequence[StepResult]) -> Iterator[tuple[int, int]]:
    """Yield ranges of moves that are still to be done and can be done in one copy: one state, or pages."""
    first = None
    for at, (move, result) in enumerate(zip(moves, results, strict=True)):
        is_page = result is DONE and move.key.kind is not ImageKind.STATE
        if first is not None and not is_page:
            yield first, at
            first = None
        if is_page and first is None:
            first = at
        if result is DONE and not is_page:
            yield at, at + 1
    if first is not None:
        yield first, len(moves)


def _cut(held: bytearray, sizes: Sequence[int]) -> list[memoryview]:
    """Return a part of `held` of each size."""
    whole, at, views = memoryview(held), 0, []
    for size in sizes:
        views.append(whole[at : at + size])
        at += size
    return views


def _is_expected(move: Move, packed: bytes) -> bool:
    return move.header.is_named_by(packed)
