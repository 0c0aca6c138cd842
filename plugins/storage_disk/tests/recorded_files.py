"""A file layer that writes every change down, and directories as a crash at any of them would leave them."""

import random
import threading
from dataclasses import dataclass, field

from ninfer_storage_disk.files import Files

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""


class UnflushedFiles(Files):
    """Files that flush nothing: for looking at what a crash left, quickly."""

    def sync(self, handle):
        pass

    def sync_folder(self, path):
        pass


@dataclass(frozen=True)
class Change:
    """One change of files.

    Attributes:
        kind: write, truncate, sync; create, rename, unlink, mkdir, rmdir, sync_folder; mark.
        path: what it is about, from the folder recorded on.
        target: new name.
        file: number of the file, which keeps it over renames; -1 for folders.
        offset: of a write; new length for truncate.
        content: of a write; what a mark says.
    """

    kind: str
    path: str = ""
    target: str = ""
    file: int = -1
    offset: int = 0
    content: object = b""

    @property
    def is_mark(self):
        return self.kind == "mark"


class RecordedFiles(Files):
    """Carries changes below `root` out and writes them down, from any thread."""

    def __init__(self, root):
        super().__init__()
        self.root = root
        self.changes = []
        self.lock = threading.RLock()
        self._files = {}
        self._handles = {}

    def mark(self, content):
        """Write down what somebody was promised."""
        with self.lock:
            self.changes.append(Change("mark", content=content))

    def _name(self, path):
        return path.relative_to(self.root).as_posix()

    def _note(self, kind, **what):
        self.changes.append(Change(kind, **what))

    def make_folder(self, path):
        with self.lock:
            missing = [path, *path.parents]
            missing = [p for p in missing if p.is_relative_to(self.root) and not p.exists()]
            super().make_folder(path)
            for folder in reversed(missing):
                if folder != self.root:
                    self._note("mkdir", path=self._name(folder))

    def open(self, path, *, is_new=False):
        with self.lock:
            is_missing = not path.exists()
            handle = super().open(path, is_new=is_new)
            name = self._name(path)
            if is_missing:
                self._files[name] = len(self.changes)
                self._note("create", path=name, file=self._files[name])
            elif is_new:
                self._note("truncate", path=name, file=self._files[name])
            self._handles[handle] = name, self._files[name]
            return handle

    def close(self, handle):
        with self.lock:
            self._handles.pop(handle, None)
            super().close(handle)

    def write_at(self, handle, buffer, offset):
        with self.lock:
            super().write_at(handle, buffer, offset)
            name, file = self._handles[handle]
            self._note("write", path=name, file=file, offset=offset, content=bytes(buffer))

    def truncate(self, handle, num_bytes):
        with self.lock:
            super().truncate(handle, num_bytes)
            name, file = self._handles[handle]
            self._note("truncate", path=name, file=file, offset=num_bytes)

    def grow(self, handle, num_bytes):
        with self.lock:
            super().grow(handle, num_bytes)
            name, file = self._handles[handle]
            self._note("truncate", path=name, file=file, offset=num_bytes)

    def sync(self, handle):
        with self.lock:
            name, file = self._handles[handle]
            self._note("sync", path=name, file=file)

    def replace(self, source, target):
        with self.lock:
            super().replace(source, target)
            self._files[self._name(target)] = file = self._files.pop(self._name(source))
            self._note("rename", path=self._name(source), target=self._name(target), file=file)

    def unlink(self, path):
        with self.lock:
            is_there = path.exists()
            super().unlink(path)
            if is_there:
                name = self._name(path)
                self._note("unlink", path=name, file=self._files.pop(name))

    def remove_folder(self, path):
        with self.lock:
            super().remove_folder(path)
            if not path.exists():
                self._note("rmdir", path=self._name(path))

    def sync_folder(self, path):
        with self.lock:
            self._note("sync_folder", path="" if path == self.root else self._name(path))


@dataclass
class Disk:
    """Files in memory: contents by number, names to numbers, folders."""

    contents: dict = field(default_factory=dict)
    names: dict = field(default_factory=dict)
    folders: set = field(default_factory=set)

    def apply(self, change, num_bytes=None):
        """Carry a change out; of a write, `num_bytes` only."""
        kind = change.kind
        if kind == "write":
            self.write(change.file, change.offset, change.content[:num_bytes])
        elif kind == "truncate":
            old = self.contents[change.file]
            self.contents[change.file] = old[: change.offset].ljust(change.offset, b"\0")
        elif kind == "create":
            self.contents[change.file] = bytearray()
            self.names[change.path] = change.file
        elif kind == "rename":
            self.names[change.target] = self.names.pop(change.path)
        elif kind == "unlink":
            del self.names[change.path]
        elif kind == "mkdir":
            self.folders.add(change.path)
        elif kind == "rmdir":
            self.folders.discard(change.path)

    def write(self, file, offset, content):
        old = self.contents[file]
        if len(old) < offset + len(content):
            old.extend(bytes(offset + len(content) - len(old)))
        old[offset : offset + len(content)] = content

    def lay_out(self, root):
        """Write the files into a folder."""
        for folder in sorted(self.folders):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name, file in self.names.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(self.contents[file])

    @property
    def num_bytes(self):
        return sum(len(self.contents[file]) for file in self.names.values())


def crashes(changes, promise):
    """Yield (number of the change, what was promised before it) for each change of files, and for the end.

    `promise` hears every mark on the way.
    """
    for number, change in enumerate(changes):
        if change.is_mark:
            promise.hear(change.content)
        else:
            yield number, promise
    yield len(changes), promise


def crashed_at(changes, number, *, share=None, seed=None):
    """Return what a crash before change `number` leaves: a death that tears it at `share`, or with a seed a power loss."""
    if seed is None:
        return killed_at(changes, number, share)
    return powerless_at(changes, number, random.Random(seed))


def killed_at(changes, number, share=0.0):
    """Return the disk of a process that died in change `number`, with a share of it done if it is a write."""
    disk = Disk()
    for change in changes[:number]:
        disk.apply(change)
    if number < len(changes) and changes[number].kind == "write" and share:
        disk.apply(changes[number], int(len(changes[number].content) * share))
    return disk


def powerless_at(changes, number, rng):
    """Return a disk that lost its power before change `number`.

    What was not flushed is there or not, each sector by itself; names change in order, so a first part of their
    changes since the last flush of a folder is there.
    """
    disk = Disk()
    names = [at for at in range(number) if changes[at].kind in _NAMING]
    num_durable = _num_durable_names(changes[:number], names)
    kept = names[: rng.randint(num_durable, len(names))]
    synced = {}
    for at, change in enumerate(changes[:number]):
        if change.kind == "sync":
            synced[change.file] = at
    for at in range(number):
        change = changes[at]
        if change.kind == "create":
            disk.contents[change.file] = bytearray()
        if change.kind in _NAMING:
            if at in kept:
                disk.apply(change)
        elif change.kind in {"write", "truncate"}:
            if at < synced.get(change.file, -1):
                disk.apply(change)
            else:
                _apply_partly(disk, change, rng)
    return disk


_NAMING = {"create", "rename", "unlink", "mkdir", "rmdir"}


def _num_durable_names(changes, names):
    """Count name changes up to the last one inside a folder that was flushed afterwards."""
    num_durable = 0
    for at, change in enumerate(changes):
        if change.kind == "sync_folder":
            for count, named in enumerate(names, start=1):
                if named < at and _folder_of(changes[named]) == change.path:
                    num_durable = max(num_durable, count)
    return num_durable


def _folder_of(change):
    return (change.target or change.path).rpartition("/")[0]


def _apply_partly(disk, change, rng):
    fate = rng.random()
    if fate < 0.35:
        return
    if fate < 0.7 or change.kind == "truncate":
        disk.apply(change)
        return
    for start in range(0, len(change.content), SECTOR_BYTES):
        if rng.random() < 0.5:
            disk.write(
                change.file, change.offset + start, change.content[start : start + SECTOR_BYTES]
            )
