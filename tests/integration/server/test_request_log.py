"""The request log: one record per request, as public tools read it."""

import json
import threading
import time

import pytest

from ninfer.obs.request_log import RequestLog
from tests.integration.server.conftest import LiveServer, running
from tests.integration.server.fake_model import serve_fake
from tests.integration.server.test_disconnect import send

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log" / "requests.jsonl"


def records(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_request_leaves_one_record_with_the_agreed_names(path):
    with running(serve_fake(request_log=str(path))) as live:
        answer_id = live.chat(prompt_cache_key="s").json()["id"]
        live.chat(stream=True, n=2, max_tokens=2)
        live.complete(["ab", "cd"], max_tokens=2)
        live.chat(stop="wor")
        live.chat(temperature=9)
    first, second, third, fourth = records(path)
    assert first["event"] == "request_done"
    assert first["timestamp_unix_ms"] > 1_700_000_000_000
    assert first["request"]["request_id"] == answer_id
    assert first["request"]["session_key"] == "s"
    assert first["result"] == {
        "finish_reason": "stop",
        "prompt_tokens": 21,
        "completion_tokens": 12,
        "prefix_cache_hit_tokens": 3,
        "computed_prefill_tokens": 18,
        "prefix_reuse_path": "private_endpoint",
        "drafted_tokens": 4,
        "accepted_tokens": 3,
        "drafted_by_position": [3, 1],
        "accepted_by_position": [2, 1],
    }
    assert first["restored_bytes"] == {"host": 4096, "disk": 0}
    assert first["timings_seconds"]["prefill"] == 0.25
    assert 0 <= first["timings_seconds"]["time_to_first_token"] <= first["timings_seconds"]["total"]
    assert second["request"]["stream"]
    assert second["request"]["num_choices"] == 2
    assert second["result"]["prompt_tokens"] == 21
    assert second["result"]["finish_reason"] == "length"
    assert third["request"]["endpoint"] == "/v1/completions"
    assert third["result"]["prompt_tokens"] == 4
    assert fourth["result"]["finish_reason"] == "stop"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["queue", "decode"])
def test_an_aborted_request_leaves_one_record_too(path, stream, phase):
    with running(serve_fake(request_log=str(path))) as live:
        live.engine.step_s = 0.005
        if phase == "queue":
            live.engine.queue_gate.clear()
        connection = send(
            live, "/v1/chat/completions", {**CHAT, "stream": stream, "ignore_eos": True}
        )
        live.wait_until(lambda: bool(live.engine.submitted), "it is submitted")
        if phase == "decode":
            live.wait_until(lambda: live.engine.num_steps > 3, "tokens are made")
        connection.close()
        wait_for_records(live, path, 1)
    [record] = records(path)
    assert record["result"]["finish_reason"] == "aborted"
    assert record["result"]["prefix_cache_hit_tokens"] == 3, "the engine's last event was awaited"


def wait_for_records(live: LiveServer, path, count: int) -> None:
    live.wait_until(lambda: len(path.read_text().splitlines()) >= count, f"{count} records")


def test_timeouts_and_errors_leave_one_record_too(path):
    from ninfer.core.request import FinishReason

    with running(serve_fake(request_log=str(path))) as live:
        live.engine.finish_before_start = True
        for reason in (FinishReason.TIMEOUT, FinishReason.ERROR):
            live.engine.finish_with = (reason, "x")
            live.chat()
            live.chat(stream=True)
    assert [record["result"]["finish_reason"] for record in records(path)] == ["timeout"] * 2 + [
        "error"
    ] * 2


def test_the_public_reader_understands_the_log(path):
    reader = pytest.importorskip("cache_pressure.ninfer_log")
    with running(serve_fake(request_log=str(path))) as live:
        ids = [live.chat().json()["id"], live.complete().json()["id"]]
    entries = reader.parse_ninfer_log(path)
    assert [entry["request_id"] for entry in entries] == ids
    assert entries[0]["prompt"] == 21
    assert entries[0]["prefix_cache_hit_tokens"] == 3
    assert entries[0]["computed_prefill_tokens"] == 18
    assert entries[0]["prefix_reuse_path"] == "private_endpoint"
    assert isinstance(entries[0]["ts"], int)


def test_records_of_a_restarted_server_are_appended(path):
    for _ in range(2):
        with running(serve_fake(request_log=str(path))) as live:
            live.chat()
    assert len(records(path)) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_record_is_in_the_file_when_its_answer_ends(path, stream, monkeypatch):
    write = RequestLog._write

    def slow_write(self, waiting):
        time.sleep(0.01)
        write(self, waiting)

    monkeypatch.setattr(RequestLog, "_write", slow_write)
    with running(serve_fake(request_log=str(path))) as live:
        for number in range(1, 51):
            live.chat(stream=stream, max_tokens=2)
            assert len(records(path)) == number


@pytest.mark.parametrize("stream", [False, True])
def test_a_log_that_hangs_holds_an_answer_for_a_moment_only(path, stream, monkeypatch):
    goes_on = threading.Event()
    write = RequestLog._write

    def hanging_write(self, waiting):
        goes_on.wait(20)
        write(self, waiting)

    monkeypatch.setattr(RequestLog, "_write", hanging_write)
    with running(serve_fake(request_log=str(path))) as live:
        started_s = time.monotonic()
        assert live.chat(stream=stream, max_tokens=2).status_code == 200
        assert 0.25 <= time.monotonic() - started_s < 5
        assert records(path) == []
        goes_on.set()
    assert len(records(path)) == 1
