"""`ninfer simulate` as people call it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ninfer.cli.main import app

HEAD = Path(__file__).parents[1] / "simulate" / "conversation_head.jsonl.gz"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def trace(tmp_path):
    """Four prompts of two blocks, two of them again, as a Mooncake trace."""
    path = tmp_path / "trace.jsonl"
    ids = [[0, 1], [2, 3], [4, 5], [0, 1], [4, 5]]
    path.write_text(
        "".join(
            json.dumps({"timestamp": at * 1000, "input_length": 1024, "hash_ids": two}) + "\n"
            for at, two in enumerate(ids)
        )
    )
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


def test_a_table_has_a_row_per_policy_and_one_of_the_optimum(trace):
    result = run(trace, "--device", "6", "--policy", "lru", "--policy", "costmodel")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0][:2] == ["DEVICE", "POLICY"]
    assert [line[1] for line in lines[1:]] == ["lru", "costmodel", "belady"]
    assert all(line[2] == "0.400" for line in lines[1:])


def test_json_has_every_size_tier_and_way(trace, tmp_path):
    path = tmp_path / "out.json"
    flags = ["--device", "2", "--host", "1", "--disk", "10MiB", "--capacities", "1,4"]
    assert run(trace, *flags, "--json", path).exit_code == 0
    data = json.loads(path.read_text())
    assert data["version"] == 1
    assert data["trace"]["num_blocks"] == 10
    one, four = data["studies"]
    assert (one["blocks"], four["blocks"]["disk"]) == ({"device": 2, "host": 1, "disk": 1}, 4)
    assert [found["policy"] for found in four["policies"]] == ["costmodel", "lru"]
    assert [best["num_blocks"] for best in four["belady"]] == [2, 3, 7]
    lru = four["policies"][1]
    assert lru["hit_tokens"]["host"] + lru["hit_tokens"]["disk"] > 0
    assert lru["moved"]["device>host"]["num_bytes"] > 0
    assert lru["saved_s"] <= lru["prefill_s"]


def test_a_plot_is_a_png(trace, tmp_path):
    path = tmp_path / "out.png"
    result = run(trace, "--device", "2", "--host", "2", "--capacities", "1,2,4", "--plot", path)
    assert result.exit_code == 0, result.output
    assert path.read_bytes().startswith(PNG)


def test_without_matplotlib_a_plot_says_what_to_install_before_anything_long(
    trace, tmp_path, monkeypatch
):
    monkeypatch.setattr("ninfer.simulate.plot.find_spec", lambda _name: None)
    assert 'pip install "ninfer[plot]"' in refused(trace, "--plot", tmp_path / "out.png")


def test_what_is_wrong_is_named(trace, tmp_path):
    assert "No such file" in refused(tmp_path / "missing.jsonl")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(trace.read_text() + "{\n")
    assert f"{bad}, line 6: not JSON" in refused(bad)
    unknown = refused(trace, "--policy", "fifo")
    assert "fifo" in unknown
    assert "costmodel" in unknown
    assert "lru" in unknown
    assert "--device lots" in refused(trace, "--device", "lots")
    assert "--capacities x" in refused(trace, "--capacities", "2,x")
    assert "--device : neither blocks" in refused(trace, "--device", "")
    assert "--disk needs --host" in refused(trace, "--disk", "7")
    assert "--prefill-speed 0" in refused(trace, "--prefill-speed", "0")
    assert "--prefill-speed inf" in refused(trace, "--prefill-speed", "inf")
    assert "--bytes-per-token" in refused(trace, "--bytes-per-token", "much")
    assert "--json" in refused(trace, "--json", tmp_path / "missing" / "out.json")
    assert "--block-tokens" in refused(trace, "--block-tokens", "64")
    assert "calibration" in refused(trace, "--calibration", tmp_path / "missing.json")


@pytest.mark.parametrize("flag", ["--json", "--plot"])
def test_a_file_that_cannot_be_written_is_told_before_anything_long(trace, tmp_path, flag):
    for path in (tmp_path, tmp_path / "missing" / "out"):
        result = run(trace, flag, path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{flag} {path}: no file can be written there" in result.stderr


def test_measured_speeds_count(trace, tmp_path):
    calibration = tmp_path / "model.json"
    calibration.write_text('{"prefill": {"seconds_per_token": 1.0}}')
    out = tmp_path / "out.json"
    assert run(trace, "--device", "6", "--calibration", calibration, "--json", out).exit_code == 0
    saved = json.loads(out.read_text())["studies"][0]["policies"][0]["saved_s"]
    assert saved == pytest.approx(4 * 512)


def test_a_public_trace_is_replayed_from_the_command_line():
    result = run(HEAD, "--device", "2000", "--policy", "lru")
    assert result.exit_code == 0
    assert "0.036" in result.stdout
