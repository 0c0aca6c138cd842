"""The record that a request leaves in the request log. Knows nothing about how it is written.

The names are read by public tools (`cache_pressure/ninfer_log.py` of PyPI `cache-pressure`): they bind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ninfer.server.generation.lane import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What is known of a request before it runs.

    Attributes:
        answer_id: the `id` of the answer.
        http_request_id: the `x-request-id` of the HTTP request.
        endpoint: its path.
        model: served name.
        is_streaming: answered in pieces.
        session_key: the client's hint, empty for none.
    """

    answer_id: str
    http_request_id: str
    endpoint: str
    model: str
    is_streaming: bool
    session_key: str = ""


def done_record(
    facts: RequestFacts,
    lanes: Sequence[Lane],
    *,
    finish_reason: str,
    timestamp_unix_s: float,
    total_s: float,
    first_token_s: float | None,
) -> dict[str, object]:
    """Return the terminal record of a request that reached the engine.

    Args:
        facts: of the request.
        lanes: its choices, at least one.
        finish_reason: why the request as a whole ended.
        timestamp_unix_s: now.
        total_s: since it arrived.
        first_token_s: from its arrival to the first token, None without one.
    """
    firsts = [lane.stats for lane in lanes if lane.is_first_of_prompt]
    num_prompt = sum(stats.num_prompt_tokens for stats in firsts)
    num_cached = sum(stats.num_cached_tokens for stats in firsts)
    restored: dict[str, int] = {"host": 0, "disk": 0}
    for lane in lanes:
        for tier, num_bytes in lane.stats.restored_bytes.items():
            restored[tier] = restored.get(tier, 0) + num_bytes
    return {
        "event": "request_done",
        "timestamp_unix_ms": round(timestamp_unix_s * 1000),
        "request": {
            "request_id": facts.answer_id,
            "http_request_id": facts.http_request_id,
            "endpoint": facts.endpoint,
            "model": facts.model,
            "stream": facts.is_streaming,
            "num_choices": len(lanes),
            "max_tokens": lanes[0].request.max_tokens,
            "session_key": facts.session_key or None,
        },
        "result": {
            "finish_reason": finish_reason,
            "prompt_tokens": num_prompt,
            "completion_tokens": sum(lane.num_tokens for lane in lanes),
            "prefix_cache_hit_tokens": num_cached,
            "computed_prefill_tokens": num_prompt - num_cached,
            "prefix_reuse_path": str(firsts[0].reuse_path),
            "drafted_tokens": sum(lane.stats.num_drafted for lane in lanes),
            "accepted_tokens": sum(lane.stats.num_accepted for lane in lanes),
            "drafted_by_position": _sums(lane.stats.drafted_at for lane in lanes),
            "accepted_by_position": _sums(lane.stats.accepted_at for lane in lanes),
        },
        "timings_seconds": {
            "queue": max(stats.queue_s for stats in firsts),
            "prefill": max(stats.prefill_s for stats in firsts),
            "decode": max(lane.stats.decode_s for lane in lanes),
            "time_to_first_token": first_token_s,
            "total": total_s,
        },
        "restored_bytes": restored,
    }


def _sums(counts: Iterable[Sequence[int]]) -> list[int]:
    """Add up position by position."""
    return [sum(column) for column in zip_longest(*counts, fillvalue=0)]
