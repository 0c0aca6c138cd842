"""A correct tier that several instances use at once, and mutants of it. Instances may not race with each other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from typing_extensions import override

from ninfer.api import (
    ImageKey,
    ImageKind,
    PutItem,
    PutResult,
    PutStatus,
    ReadItem,
    ReadResult,
    TierCapabilities,
    TierChanges,
)
from ninfer.testing.mutants.file_tier import NAME, FileTier, StoredImage

LOG: Final = "changes"


class SharedFileTier(FileTier):
    """A FileTier that looks at its folder before each call, and writes down in a log what it did.

    A cursor is a number of lines of the log.
    """

    promises = TierCapabilities(durable=True, enumerable=True, shared=True)
    stamps: dict[ImageKey, int]

    @override
    def load(self) -> None:
        self.stamps = {}
        super().load()

    @override
    def require_open(self) -> None:
        super().require_open()
        self.look()

    def look(self) -> None:
        """Bring the index up to date with the folder."""
        paths = {path.name: path for path in self.folder.iterdir() if NAME.fullmatch(path.name)}
        for key in [key for key in self.images if key.text not in paths]:
            del self.images[key]
        found = [self._changed(path) for name, path in sorted(paths.items()) if ".new" not in name]
        for _, key, image in sorted((one for one in found if one), key=lambda one: one[0]):
            self.images.pop(key, None)
            self.images[key] = image

    def _changed(self, path: Path) -> tuple[int, ImageKey, StoredImage] | None:
        kind, _, digest = path.name.partition("-")
        key = ImageKey(digest=bytes.fromhex(digest), kind=ImageKind(kind))
        stamp = path.stat().st_mtime_ns
        decoded = None if self.stamps.get(key) == stamp else self.decode(path.read_bytes())
        self.stamps[key] = stamp
        if decoded is None:
            return None
        number, header, payload = decoded
        return number, key, StoredImage(header=header, payload_bytes=len(payload), number=number)

    def note(self, sign: str, key: ImageKey) -> None:
        """Write down a change."""
        with (self.folder / LOG).open("a", encoding="ascii") as log:
            log.write(f"{sign}{key.text}\n")

    def noted(self) -> list[str]:
        """Return all changes that were written down."""
        path = self.folder / LOG
        return path.read_text(encoding="ascii", errors="replace").split() if path.exists() else []

    @override
    def put_one(self, item: PutItem) -> PutResult:
        result = super().put_one(item)
        if result.status is PutStatus.STORED:
            self.note("+", item.key)
        return result

    @override
    def delete_one(self, key: ImageKey) -> bool:
        was_there = super().delete_one(key)
        if was_there:
            self.note("-", key)
        return was_there

    @override
    def changes(self, cursor: bytes, limit: int) -> TierChanges:
        with self.lock:
            self.require_open()
            lines = self.noted()
            if not cursor:
                return TierChanges(cursor=b"%d" % len(lines))
            start = int(cursor)
            named = {line[1:] for line in lines[start : start + limit]}
            records = [record for record in self.records() if record.key.text in named]
            gone = named - {record.key.text for record in records}
            return TierChanges(
                records=records,
                removed=self.keys_of(gone),
                cursor=b"%d" % self.next_place(start, len(lines), limit),
            )

    def keys_of(self, names: set[str]) -> list[ImageKey]:
        """Return the keys of names, leaving out what is no name."""
        matches = [match for name in sorted(names) if (match := NAME.fullmatch(name))]
        return [ImageKey(digest=bytes.fromhex(m[2]), kind=ImageKind(m[1])) for m in matches]

    def next_place(self, start: int, end: int, limit: int) -> int:
        """Return the place after an answer of at most `limit` lines."""
        return min(start + limit, end)


class ReadsItsOwn(SharedFileTier):
    """Does not look for what others stored before it reads."""

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        with self.lock:
            FileTier.require_open(self)
            return [self.read_one(item) for item in items]


class SkipsOne(SharedFileTier):
    """Loses one change between two answers."""

    @override
    def next_place(self, start: int, end: int, limit: int) -> int:
        return min(start + limit + 1, end)


class CountsItsOwn(SharedFileTier):
    """Has room as long as what it stored itself fits."""

    own: Mapping[ImageKey, int] = MappingProxyType({})

    @override
    def put_one(self, item: PutItem) -> PutResult:
        result = super().put_one(item)
        if result.status is PutStatus.STORED:
            num_bytes = self.stored_bytes(len(item.header), item.payload.nbytes)
            self.own = {**self.own, item.key: num_bytes}
        return result

    @override
    def has_room(self, key: ImageKey, header: bytes, payload_bytes: int) -> bool:
        others = set(self.images) - set(self.own)
        foreign = sum(
            self.stored_bytes(len(self.images[other].header), self.images[other].payload_bytes)
            for other in others
            if self.images[other].payload_bytes > 20_000
        )
        return super().has_room(key, header, payload_bytes - foreign)


SHARING_MUTANTS: Final[Mapping[type[FileTier], str]] = MappingProxyType({
    ReadsItsOwn: "TIER-39",
    SkipsOne: "TIER-40",
    CountsItsOwn: "TIER-41",
})
"""Each mutant with the one requirement that it breaks."""
