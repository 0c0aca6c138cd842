"""Images of one model on the server: scripts, replies, accounting. Knows nothing about batches of the contract."""

import itertools
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import redis

from ninfer_tier_redis import scripts
from ninfer_tier_redis.keyspace import Keyspace
from ninfer_tier_redis.link import Command, Link, Unreachable
from ninfer_tier_redis.record import Entry, Image, read_entry

NEW_VALUE_TTL_S: Final = 60
"""A value whose writer died before it was committed disappears after this."""

_PAGE: Final = 1000
"""Fields or keys of one round trip when everything is listed."""


class ServerError(Exception):
    """The server refused a command."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Accounting of the model as the server last said it, bytes. `seq` and `epoch` say when that was."""

    used_bytes: int
    num_images: int
    capacity_bytes: int
    seq: int = 0
    epoch: bytes = b""


class Store:
    """Images of one model.

    Invariants, on the server and after every script:
        meta.used = sum of charges in the index <= meta.capacity (unless the cap was just lowered)
        log entries are numbered 1..meta.seq without gaps; old ones may be gone

    Args:
        link: connection.
        keys: names of keys.
        capacity_bytes: cap that this server is configured for.
    """

    def __init__(self, link: Link, keys: Keyspace, *, capacity_bytes: int) -> None:
        """Touch nothing yet; `open` does."""
        self.link = link
        self.keys = keys
        self.writer = secrets.token_hex(4)
        self.usage = Usage(0, 0, capacity_bytes)
        self._capacity_bytes = capacity_bytes
        self._numbers = itertools.count()
        self._lock = Lock()
        self._doubtful: dict[str, bytes] = {}

    # ---- opening -----------------------------------------------------------------------------------

    def open(self) -> int:
        """Make or take over the accounting and set the cap; return the cap before, -1 if there was none.

        Raises:
            Unreachable: the server does not answer.
            ServerError: it refuses.
        """
        return self._open("set")

    def _open(self, mode: str) -> int:
        epoch = secrets.token_hex(8)
        reply = self.link.send([
            self._eval(scripts.OPEN, (), epoch, self._capacity_bytes, mode),
        ])[0]
        return self._take(reply)

    def sweep(self) -> int:
        """Remove values that the index does not know; return how many. Cost: one walk over all keys of the server."""
        num_removed = 0
        for keys in self._scan_images():
            commands = []
            for key in keys:
                field = self.keys.field_of(key)
                commands.append(("EVAL", scripts.SWEEP, 2, self.keys.index, key, field))
            num_removed += sum(map(int, map(_value, self.link.send(commands))))
        return num_removed

    def _scan_images(self) -> Iterator[list[bytes]]:
        cursor = 0
        while True:
            command = ("SCAN", cursor, "MATCH", self.keys.image_pattern, "COUNT", 10 * _PAGE)
            cursor, keys = _value(self.link.send([command])[0])
            if keys:
                yield keys
            if not cursor:
                return

    # ---- images ------------------------------------------------------------------------------------

    def find(self, fields: Sequence[str]) -> list[bytes | None]:
        """Return for each field its entry, None if it has none or no value. Refreshes `usage`."""
        self._settle()
        commands: list[Command] = [("EXISTS", self.keys.image(field)) for field in fields]
        commands.append(("HMGET", self.keys.index, *fields))
        commands.append(self._eval(scripts.LOOK, ()))
        *exist, entries, books = self.link.send(commands)
        self._take(books)
        return [
            entry if not isinstance(found, redis.RedisError) and found else None
            for found, entry in zip(exist, _value(entries), strict=True)
        ]

    def write(self, images: Sequence[Image]) -> list[int | redis.RedisError]:
        """Store images with different fields; for each, a code of `COMMIT` or the server's error.

        Raises:
            Unreachable: nobody knows which were stored; those that were are removed again before anything else.
        """
        commands: list[Command] = []
        for image in images:
            new = self.keys.new(self.writer, next(self._numbers))
            commands.append(("SET", new, image.value(), "EX", NEW_VALUE_TTL_S))
            keys = (self.keys.image(image.field), new)
            commands.append(
                self._eval(scripts.COMMIT, keys, image.field, image.entry(), self.writer)
            )
            commands.append(("DEL", new))
        try:
            replies = self.link.send(commands)
        except Unreachable:
            with self._lock:
                self._doubtful.update({image.field: image.entry() for image in images})
            raise
        answers: list[int | redis.RedisError] = []
        for at in range(0, len(replies), 3):
            stored, committed = replies[at], replies[at + 1]
            if isinstance(stored, redis.RedisError):
                answers.append(stored)
            elif isinstance(committed, redis.RedisError):
                answers.append(committed)
            else:
                answers.append(self._take(committed))
        if scripts.GONE in answers:
            self._open("keep")
        return answers

    def read(self, fields: Sequence[str]) -> list[tuple[bytes | None, Any]]:
        """Return for each field (entry, value): None where there is none, an error in place of a wrong value."""
        self._settle()
        commands: list[Command] = [("HMGET", self.keys.index, *fields)]
        commands += [("GET", self.keys.image(field)) for field in fields]
        entries, *values = self.link.send(commands)
        return list(zip(_value(entries), values, strict=True))

    def drop(self, fields: Iterable[str], expected: Iterable[bytes] | None = None) -> list[bool]:
        """Remove images; for each, tell whether its value was there.

        Args:
            fields: what to remove.
            expected: entries that they must still have.
        """
        wanted = itertools.repeat(b"") if expected is None else expected
        commands = [
            self._eval(scripts.DROP, (self.keys.image(field),), field, self.writer, entry)
            for field, entry in zip(fields, wanted, strict=False)
        ]
        if not commands:
            return []
        codes = [self._take(reply) for reply in self.link.send(commands)]
        if scripts.GONE in codes:
            self._open("keep")
        return [code == scripts.DONE for code in codes]

    def _settle(self) -> None:
        """Remove what was stored by commands whose answers never came."""
        with self._lock:
            doubtful = dict(self._doubtful)
        if doubtful:
            self.drop(doubtful, doubtful.values())
            with self._lock:
                for field in doubtful:
                    self._doubtful.pop(field, None)

    # ---- lists -------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[bytes, Entry]]:
        """Yield (field, entry) of all images whose value exists."""
        seen: set[bytes] = set()
        cursor = 0
        while True:
            cursor, found = self.page(cursor, _PAGE)
            for field, entry in found:
                if field not in seen:
                    seen.add(field)
                    yield field, entry
            if not cursor:
                return

    def page(self, cursor: int, num_fields: int) -> tuple[int, list[tuple[bytes, Entry]]]:
        """Return about `num_fields` images from a place on, and the next place, 0 at the end."""
        command = ("HSCAN", self.keys.index, cursor, "COUNT", num_fields)
        next_cursor, found = _value(self.link.send([command])[0])
        return int(next_cursor), self._existing(dict(found))

    def entries_of(self, fields: Sequence[bytes]) -> list[tuple[bytes, Entry]]:
        """Return (field, entry) of those that are stored."""
        if not fields:
            return []
        packed = _value(self.link.send([("HMGET", self.keys.index, *fields)])[0])
        pairs = zip(fields, packed, strict=True)
        return self._existing({field: entry for field, entry in pairs if entry is not None})

    def _existing(self, packed: dict[bytes, bytes]) -> list[tuple[bytes, Entry]]:
        if not packed:
            return []
        exist = self.link.send([("EXISTS", self.keys.image(f.decode())) for f in packed])
        pairs = zip(packed.items(), map(_value, exist), strict=True)
        entries = [(field, read_entry(entry)) for (field, entry), exists in pairs if exists]
        return [(field, entry) for field, entry in entries if entry is not None]

    # ---- verification ------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Return a sentence for each invariant that does not hold on the server."""
        sum_bytes = self._take(self.link.send([self._eval(scripts.AUDIT, ())])[0])
        problems = []
        if sum_bytes != self.usage.used_bytes:
            problems.append(
                f"the charges in the index sum to {sum_bytes} B, meta says {self.usage.used_bytes} B"
            )
        if self.usage.used_bytes > self.usage.capacity_bytes:
            problems.append(f"{self.usage.used_bytes} B are used of {self.usage.capacity_bytes} B")
        listed = {field for field, _ in self.entries()}
        if len(listed) != self.usage.num_images:
            problems.append(f"{self.usage.num_images - len(listed)} images have no value")
        for keys in self._scan_images():
            unlisted = [key for key in keys if self.keys.field_of(key).encode() not in listed]
            problems += [f"{key.decode()} is not in the index" for key in unlisted]
        return problems

    # ---- replies -----------------------------------------------------------------------------------

    def _eval(self, script: str, keys: Sequence[str], *arguments: str | bytes | int) -> Command:
        names = (self.keys.meta, self.keys.index, self.keys.log, *keys)
        return ("EVAL", script, len(names), *names, *arguments)

    def _take(self, reply: Any) -> int:  # noqa: ANN401 - a reply of the server
        """Keep the accounting of a script's answer; return its code.

        Answers may come out of order when several threads ask: only a later one counts.
        """
        code, used, num_images, capacity, seq, epoch = _value(reply)
        told = Usage(int(used), int(num_images), int(capacity), int(seq), bytes(epoch))
        with self._lock:
            is_later = told.epoch != self.usage.epoch or told.seq >= self.usage.seq
            if told.capacity_bytes and is_later:
                self.usage = told
        return int(code)


def _value(reply: Any) -> Any:  # noqa: ANN401 - a reply of the server
    """Return a reply that is not an error.

    Raises:
        ServerError: it is one.
    """
    if isinstance(reply, redis.RedisError):
        raise ServerError(str(reply))
    return reply
