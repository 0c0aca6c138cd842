"""A server's own request log can be replayed: digests of prompt pages, salted, off by default."""

import json
import stat

import pytest

from ninfer.api import ConfigError
from ninfer.core.request import CacheParams, GenerationRequest
from ninfer.plugins import PluginCatalog
from ninfer.server.page_digests import PageDigests
from ninfer.simulate.costs import Costs
from ninfer.simulate.replay import replay
from ninfer.simulate.trace import read_trace
from tests.integration.server.conftest import running
from tests.integration.server.fake_model import serve_fake


def names(digests, tokens, salt=""):
    request = GenerationRequest(
        request_id="r", prompt_token_ids=tokens, max_tokens=1, cache=CacheParams(salt=salt)
    )
    return digests.of(request)


def test_names_are_equal_as_far_as_tokens_are_and_only_with_the_same_salt_and_tenant(tmp_path):
    digests = PageDigests.open(tmp_path / "log.salt")
    tokens = list(range(200))
    changed = [*tokens[:70], 7, *tokens[71:]]
    assert len(names(digests, tokens)) == 3
    assert names(digests, tokens[:128]) == names(digests, tokens)[:2]
    assert names(digests, changed)[0] == names(digests, tokens)[0]
    assert not set(names(digests, changed)[1:]) & set(names(digests, tokens))
    assert not set(names(digests, tokens, "other")) & set(names(digests, tokens))
    assert names(PageDigests.open(tmp_path / "log.salt"), tokens) == names(digests, tokens)
    assert not set(names(PageDigests.open(tmp_path / "b.salt"), tokens)) & set(
        names(digests, tokens)
    )
    assert stat.S_IMODE((tmp_path / "log.salt").stat().st_mode) == 0o600
    assert names(digests, tokens[:63]) == []


def test_a_salt_that_cannot_be_used_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        PageDigests.open(tmp_path / "missing" / "log.salt")
    (tmp_path / "short.salt").write_bytes(b"x")
    with pytest.raises(ConfigError, match="1 bytes instead of 32"):
        PageDigests.open(tmp_path / "short.salt")


def served(path, **settings):
    text = "the quick brown fox jumps over the lazy dog " * 5
    with running(serve_fake(request_log=str(path), **settings)) as live:
        for question in ("one", "two"):
            assert live.complete(text + question, max_tokens=3).status_code == 200


def test_a_server_log_replays_with_the_hits_its_prompts_allow(tmp_path):
    path = tmp_path / "requests.jsonl"
    served(path, request_log_digests=True)
    trace = read_trace(path)
    assert len(trace.requests) == 2
    first, second = trace.requests
    num_pages = len(first.blocks)
    assert num_pages == first.num_prompt_tokens // 64 > 2
    assert first.blocks[: num_pages - 1] == second.blocks[: num_pages - 1]
    result = replay(trace, PluginCatalog.discover().policy("lru")[0], [1000], Costs())
    assert result.num_hit_blocks >= num_pages - 1
    assert "fox" not in path.read_text()


def test_without_the_switch_the_log_has_no_digests(tmp_path):
    path = tmp_path / "requests.jsonl"
    served(path)
    assert all("prompts" not in json.loads(line) for line in path.read_text().splitlines())
    assert not (tmp_path / "requests.jsonl.salt").exists()
