"""Requests from other threads while the engine is closed: each is refused or answered."""

import threading

import pytest

from ninfer.core.errors import EngineStopped
from ninfer.core.request import CacheParams, GenerationRequest
from ninfer.engine.service import EngineService
from ninfer.obs.model_info import ModelInfo
from tests.fakes.harness import Answer, Harness


def test_a_request_that_was_let_in_before_the_engine_closed_is_refused_or_answered(monkeypatch):
    harness = Harness()
    thread = threading.Thread(target=harness.loop.run, daemon=True)
    thread.start()
    info = ModelInfo(
        name="fake",
        max_context_tokens=4096,
        vocab_size=4,
        kv_capacity_tokens=4096,
        created_unix=0,
    )
    service = EngineService(harness.loop, thread, info, max_queue=9, is_cache_enabled=True)
    fitted, answer = service._fitted, Answer()

    def fitted_while_the_engine_closes(request):
        service.close()
        return fitted(request)

    monkeypatch.setattr(service, "_fitted", fitted_while_the_engine_closes)
    request = GenerationRequest(
        request_id="late",
        prompt_token_ids=[1] * 10,
        max_tokens=4,
        stop_token_ids=frozenset(),
        cache=CacheParams(),
    )
    with pytest.raises(EngineStopped):
        service.submit(request, answer)
    assert not service._live
    harness.close()
