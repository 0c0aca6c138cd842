import json
import os
import threading

import pytest

from ninfer.api.errors import ConfigError
from ninfer.obs.request_log import RequestLog


def test_all_records_are_in_the_file_after_close_in_order(tmp_path):
    path = tmp_path / "new" / "log.jsonl"
    log = RequestLog(path)
    for number in range(1000):
        log.append({"number": number, "text": "é\n"})
    log.close()
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["number"] for row in rows] == list(range(1000))
    assert rows[0]["text"] == "é\n"
    assert log.num_dropped == 0


def test_closing_twice_and_appending_after_close_are_harmless(tmp_path):
    log = RequestLog(tmp_path / "log.jsonl")
    log.close()
    log.append({"number": 1})
    log.close()
    assert (tmp_path / "log.jsonl").read_text() == ""


def test_an_existing_file_is_appended_to_and_a_new_one_is_private(tmp_path):
    path = tmp_path / "log.jsonl"
    for number in range(2):
        log = RequestLog(path)
        log.append({"number": number})
        log.close()
    assert len(path.read_text().splitlines()) == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_path_that_cannot_be_written_is_a_config_error_that_names_it(tmp_path):
    with pytest.raises(ConfigError, match=f"server.request_log: cannot write {tmp_path}"):
        RequestLog(tmp_path)


def test_a_full_disk_loses_records_but_never_raises_and_recovers(tmp_path):
    log = RequestLog(tmp_path / "log.jsonl")
    good = log._file

    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

    log._file = Full()
    log.append({"number": 1})
    while log.num_dropped == 0:
        pass
    log._file = good
    log.append({"number": 2})
    log.close()
    assert log.num_dropped == 1
    assert json.loads((tmp_path / "log.jsonl").read_text())["number"] == 2


def test_appending_never_waits_for_the_disk(tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    log = RequestLog(fifo)
    for _ in range(12_000):
        log.append({"text": "x" * 100})
    assert log.num_dropped > 0, (
        "the pipe is full, so the writer stands still and the queue fills up"
    )
    os.set_blocking(reader, True)
    drain = threading.Thread(
        target=lambda: [None for _ in iter(lambda: os.read(reader, 65536), b"")], daemon=True
    )
    drain.start()
    log.close()
    drain.join()
    os.close(reader)
