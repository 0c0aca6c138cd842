"""Reading traces: both formats, plain and gzipped, and errors that name file and line."""

import gzip
import json

import pytest

from ninfer.api import ConfigError
from ninfer.simulate.trace import read_trace


def written(tmp_path, *records, name="trace.jsonl"):
    path = tmp_path / name
    text = "".join(
        (record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records
    )
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def mooncake(timestamp=0, tokens=1000, ids=(5, 9)):
    return {"timestamp": timestamp, "input_length": tokens, "output_length": 3, "hash_ids": ids}


def logged(unix_ms, prompt_tokens, digests):
    prompt = {"prompt_tokens": prompt_tokens, "page_digests": digests}
    return {"event": "request_done", "timestamp_unix_ms": unix_ms, "prompts": [prompt]}


@pytest.mark.parametrize("before", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_texts_from_any_system_are_read(tmp_path, before, end):
    path = tmp_path / "trace.jsonl"
    lines = [json.dumps(mooncake()), "", json.dumps(mooncake(timestamp=2000))]
    path.write_bytes((before + end.join(lines)).encode())
    assert len(read_trace(path).requests) == 2


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_a_mooncake_trace_is_read_plain_and_gzipped(tmp_path, name):
    path = written(tmp_path, mooncake(3000), "", mooncake(1000, 600, [5, 7]), name=name)
    trace = read_trace(path)
    assert trace.block_tokens == 512
    first, second = trace.requests
    assert (first.time_s, second.time_s) == (0.0, 2.0), "in order of time, from 0 on"
    assert first.blocks[0] == second.blocks[0]
    assert first.blocks[1] != second.blocks[1]
    assert (len(first.blocks), first.num_prompt_tokens) == (2, 600)


def test_a_request_log_is_read_in_pages_of_64_tokens(tmp_path):
    two = logged(9000, 64, ["aa"])
    two["prompts"] *= 2
    path = written(tmp_path, {"event": "server_started"}, logged(5000, 150, ["aa", "bb"]), two)
    trace = read_trace(path)
    assert trace.block_tokens == 64
    first, second, third = trace.requests
    assert (len(first.blocks), first.num_prompt_tokens) == (2, 150)
    assert second.blocks == third.blocks == first.blocks[:1]
    assert second.time_s == 4.0


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (mooncake(tokens=float("inf")), '"input_length" is inf'),
        (mooncake(timestamp=float("inf")), '"timestamp" is inf'),
        (mooncake(timestamp=float("nan")), '"timestamp" is nan'),
        ("[]", "not a JSON object"),
        ({"timestamp": 1}, "neither"),
        (mooncake(ids=["x"]), '"hash_ids" is not a list of numbers'),
        (mooncake(tokens=-1), '"input_length" is -1'),
        (mooncake(tokens=True), '"input_length" is True'),
        (mooncake(timestamp="now"), "\"timestamp\" is 'now'"),
        (mooncake(tokens=2000), "2 hash_ids for 2000 tokens"),
        ({"event": "request_done", "prompts": 3}, '"prompts" is not a list of objects'),
        (logged(1, 640, ["aa"]), "1 page_digests for 640 tokens"),
        (logged(1, 64, "aa"), '"page_digests" is not a list of texts'),
        (logged(1, None, ["aa"]), '"prompt_tokens" is None'),
    ],
)
def test_a_wrong_line_is_named_by_its_number(tmp_path, line, complaint):
    path = written(tmp_path, mooncake(), line)
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert f"{path}, line 2: " in str(caught.value)
    assert complaint in str(caught.value)


def test_a_log_without_digests_says_what_to_switch_on(tmp_path):
    record = logged(1, 64, ["aa"])
    del record["prompts"]
    with pytest.raises(ConfigError, match="request_log_digests = true"):
        read_trace(written(tmp_path, record))


def test_files_that_cannot_be_read_are_errors_for_people(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_trace(tmp_path / "missing.jsonl")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"{}" * 1000)[:20])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "torn.gz")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "binary.jsonl")
    with pytest.raises(ConfigError, match="has no request"):
        read_trace(written(tmp_path))
