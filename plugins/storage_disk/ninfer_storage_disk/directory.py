"""The directory of a disk tier: its byte cap, shared by stores of several models. Knows nothing about images."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.api import TierUnavailable
from ninfer_storage_disk.about import ABOUT
from ninfer_storage_disk.filelock import locked, try_lock
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.journal import FILE_HEAD_BYTES, decode_head

STEP_BYTES: Final = 64 << 10
"""Journals are charged in multiples of this, so that they can grow a little without asking."""

DATA: Final = "data"
JOURNAL: Final = "journal"
DAMAGED_JOURNAL: Final = "journal.damaged"
LOCK: Final = "lock"
LEFTOVERS: Final = (JOURNAL + ".new", ABOUT + ".new")
"""What a crash in the middle of a rename leaves."""

_OWN_FILES: Final = (DATA, *LEFTOVERS, DAMAGED_JOURNAL, ABOUT, JOURNAL)
"""In the order of deletion: as long as there is anything to delete, the journal says whose it is."""
_STORE_NAME: Final = re.compile(r"[0-9a-f]{32}")


def charged_journal_bytes(num_bytes: int) -> int:
    """Return what a journal is charged: twice its length in steps, because a rewrite has two of them."""
    return 2 * (-(-num_bytes // STEP_BYTES) * STEP_BYTES)


@dataclass(frozen=True, slots=True)
class OtherStore:
    """A store of another model in the same directory."""

    path: Path
    num_bytes: int
    last_use_unix_s: float


class Directory:
    """Everything below `root`, under one cap.

    Charge of a store: its data file + `charged_journal_bytes` of its journal + other files of it. Foreign files
    count with their length and are never opened, changed or deleted.
    """

    def __init__(self, files: Files, root: Path, capacity_bytes: int) -> None:
        """Create the directory if it does not exist."""
        self._files = files
        self.root = root
        self.capacity_bytes = capacity_bytes
        files.make_folder(root)
        self._lock_handle = files.open(root / LOCK)

    def store_path(self, fingerprint: bytes) -> Path:
        """Return the folder of a model's store."""
        return self.root / fingerprint.hex()[:32]

    @contextlib.contextmanager
    def growing(self) -> Iterator[None]:
        """Hold the directory's lock: what is measured inside stays true until a file has grown."""
        with locked(self._lock_handle):
            yield

    def other_bytes(self, own: Path) -> int:
        """Return the charge of everything but the store in `own`."""
        total = 0
        for path in self.root.iterdir():
            if path != own:
                total += _charge(path)
        return total

    def reclaim(self, own: Path, target_bytes: int) -> list[str]:
        """Delete unused stores of other models, the longest unused first, until others take `target_bytes`.

        Returns:
            Names of the deleted folders.
        """
        for path in self.root.iterdir():
            if path != own and _is_remains(path):
                self._delete_store(path)
        deleted = []
        excess = self.other_bytes(own) - target_bytes
        for store in sorted(self._other_stores(own), key=lambda store: store.last_use_unix_s):
            if excess <= 0:
                break
            if self._delete_store(store.path):
                deleted.append(store.path.name)
                excess -= store.num_bytes
        return deleted

    def check(self) -> list[str]:
        """Return a sentence if the files are longer than the cap. Foreign files can break it; ours cannot."""
        total = sum(_plain_bytes(path) for path in self.root.iterdir())
        if total > self.capacity_bytes:
            return [f"disk directory: files of {total} bytes, the cap is {self.capacity_bytes}"]
        return []

    def close(self) -> None:
        """Close the lock file."""
        self._files.close(self._lock_handle)

    def _other_stores(self, own: Path) -> Iterator[OtherStore]:
        for path in store_folders(self.root):
            if path != own:
                last_use_unix_s = (path / JOURNAL).stat().st_mtime
                yield OtherStore(path, _charge(path), last_use_unix_s)

    def _delete_store(self, path: Path) -> bool:
        handle = self._files.open(path / LOCK)
        is_unused = try_lock(handle)
        try:
            if is_unused:
                for name in _OWN_FILES:
                    self._files.unlink(path / name)
                    if name == ABOUT:
                        self._files.sync_folder(path)
        finally:
            self._files.close(handle)
        if is_unused:
            self._files.unlink(path / LOCK)
            self._files.remove_folder(path)
        return is_unused

    def lock_store(self, path: Path) -> int:
        """Make a store's folder and lock it.

        Returns:
            A handle, owned by the caller; closing it unlocks.

        Raises:
            TierUnavailable: somebody else has it locked.
        """
        while True:
            self._files.make_folder(path)
            handle = self._files.open(path / LOCK)
            is_locked = try_lock(handle)
            if is_locked and self._files.is_at(handle, path / LOCK):
                return handle
            self._files.close(handle)
            if not is_locked:
                raise TierUnavailable(
                    f"{path} is in use by another process; give each server its own `path` for its disk tier"
                )
            # Whoever deleted the store had it locked when the file was opened here.


def store_folders(root: Path) -> Iterator[Path]:
    """Yield the folders below `root` that are stores of ours, of whatever model."""
    for path in root.iterdir():
        journal = path / JOURNAL
        if not _STORE_NAME.fullmatch(path.name) or path.is_symlink() or not journal.is_file():
            continue
        with journal.open("rb") as file:
            head = decode_head(file.read(FILE_HEAD_BYTES))
        if head is not None and head.fingerprint.hex()[:32] == path.name:
            yield path


def _is_remains(path: Path) -> bool:
    """Tell whether a folder is what a crash left of a store that was being made or deleted: no images, no journal."""
    if not _STORE_NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    names = {item.name for item in path.iterdir()}
    return not names or (
        LOCK in names <= {LOCK, ABOUT, *LEFTOVERS} and (path / LOCK).stat().st_size == 0
    )


def _charge(path: Path) -> int:
    """Return the bytes of a file or of everything below a folder, journals of stores in steps."""
    if path.is_symlink() or not path.is_dir():
        return _length(path)
    is_store = _STORE_NAME.fullmatch(path.name) is not None
    total = 0
    for item in path.iterdir():
        if item.is_dir() and not item.is_symlink():
            total += _charge(item)
        elif is_store and item.name == JOURNAL:
            total += charged_journal_bytes(_length(item))
        else:
            total += _length(item)
    return total


def _plain_bytes(path: Path) -> int:
    """Return the bytes of a file or of everything below a folder."""
    if path.is_symlink() or not path.is_dir():
        return _length(path)
    return sum(_plain_bytes(item) for item in path.iterdir())


def _length(path: Path) -> int:
    """Return the length of a file, 0 if another process deletes it meanwhile."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
