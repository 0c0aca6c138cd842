"""The request log: JSON lines appended to a file by a thread of its own. Knows nothing about requests."""

import os
import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

import orjson
import structlog

from ninfer.api.errors import ConfigError

_MAX_WAITING_RECORDS: Final = 10_000
"""Some 10 MB. A disk that is this far behind loses records rather than memory."""
_MAX_BATCH_RECORDS: Final = 256
"""Written at once at most, so that records do not pile up outside of the bounded queue."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A record, and who waits for it to be in the file."""

    record: Mapping[str, object]
    handled: Future[None] = field(default_factory=Future)


class RequestLog:
    """Appends records to a JSONL file without making the caller wait for the disk.

    The file is private to the user (0600), is only appended to, and is complete after `close`.

    Invariants:
        written + dropped + waiting == appended

    Args:
        path: the file; its folder is created.

    Raises:
        ConfigError: the file cannot be opened for appending.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and start the thread."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"server.request_log: cannot write {path}: {error.strerror}"
            ) from error
        self._file: TextIO = os.fdopen(descriptor, "a", encoding="utf-8")
        self._waiting: queue.Queue[_Waiting | None] = queue.Queue(_MAX_WAITING_RECORDS)
        self._log = structlog.get_logger("ninfer.request_log")
        self._num_dropped = 0
        self._has_failed = False
        self._thread = threading.Thread(
            target=self._write_all, name="ninfer-request-log", daemon=True
        )
        self._thread.start()

    @property
    def num_dropped(self) -> int:
        """Records that are not in the file because the disk failed or was too slow."""
        return self._num_dropped

    def append(self, record: Mapping[str, object]) -> Future[None]:
        """Queue one record. Does not block; after `close` or with a full queue the record is dropped.

        Returns:
            Done when the record is in the file or lost; a disk that hangs leaves it open, and so does `close` before.
        """
        waiting = _Waiting(record)
        try:
            self._waiting.put_nowait(waiting)
        except queue.Full:
            self._num_dropped += 1
            waiting.handled.set_result(None)
        return waiting.handled

    def close(self) -> None:
        """Write what waits, then close the file. May be called twice. Blocks until it is on the disk."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _write_all(self) -> None:
        is_open = True
        while is_open:
            batch = [self._waiting.get()]
            while len(batch) < _MAX_BATCH_RECORDS and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            is_open = None not in batch
            waiting = [one for one in batch if one is not None]
            self._write([one.record for one in waiting])
            for one in waiting:
                one.handled.set_result(None)
        try:
            self._file.close()
        except OSError as error:
            self._log.warning("request_log_close_failed", error=str(error))

    def _write(self, records: Sequence[Mapping[str, object]]) -> None:
        try:
            self._file.write("".join(orjson.dumps(record).decode() + "\n" for record in records))
            self._file.flush()
        except OSError as error:
            self._num_dropped += len(records)
            if not self._has_failed:
                self._log.error(
                    "request_log_write_failed", error=str(error), num_records=len(records)
                )
            self._has_failed = True
        else:
            self._has_failed = False
