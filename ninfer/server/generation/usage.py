"""Usage and timings of an answer, for clients. Knows nothing about where they are put."""

from collections.abc import Sequence

from ninfer.core.request import RequestStats
from ninfer.server.generation.lane import Lane


def usage_of(
    lanes: Sequence[Lane], *, num_reasoning_tokens: int | None = None
) -> dict[str, object]:
    """Return OpenAI's `usage`. Prompts are counted once, however many choices they have.

    Args:
        lanes: all choices of the answer.
        num_reasoning_tokens: completion tokens inside `<think>`, None to say nothing.
    """
    firsts = [lane for lane in lanes if lane.is_first_of_prompt]
    num_prompt = sum(len(lane.request.prompt_token_ids) for lane in firsts)
    num_completion = sum(lane.num_tokens for lane in lanes)
    usage: dict[str, object] = {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(lane.stats.num_cached_tokens for lane in firsts)
        },
        "cache": _cache_of([lane.stats for lane in lanes], [lane.stats for lane in firsts]),
    }
    if num_reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": num_reasoning_tokens}
    return usage


def _cache_of(every: Sequence[RequestStats], firsts: Sequence[RequestStats]) -> dict[str, object]:
    """Return what was granted for all choices, and what came from slower tiers; our own addition."""
    restored: dict[str, int] = {}
    for stats in firsts:
        for tier, num_tokens in stats.restored_tokens.items():
            restored[tier] = restored.get(tier, 0) + num_tokens
    ends = [stats.retention_expires_unix_s for stats in every]
    known = [end for end in ends if end is not None]
    return {
        "retention_granted_s": min(stats.retention_s for stats in every),
        "retention_expires_at": int(min(known)) if len(known) == len(ends) else None,
        "restored_tokens": restored,
    }


def timings_of(lanes: Sequence[Lane]) -> dict[str, object]:
    """Return `timings` as llama.cpp's server names them; `prompt_n` is what was computed, not cached."""
    firsts = [lane.stats for lane in lanes if lane.is_first_of_prompt]
    num_cached = sum(stats.num_cached_tokens for stats in firsts)
    num_computed = sum(stats.num_prompt_tokens for stats in firsts) - num_cached
    num_predicted = sum(lane.num_tokens for lane in lanes)
    prompt_s = max(stats.prefill_s for stats in firsts)
    predicted_s = max(lane.stats.decode_s for lane in lanes)
    return {
        "cache_n": num_cached,
        "prompt_n": num_computed,
        "prompt_ms": prompt_s * 1000.0,
        "prompt_per_second": _rate(num_computed, prompt_s),
        "predicted_n": num_predicted,
        "predicted_ms": predicted_s * 1000.0,
        "predicted_per_second": _rate(num_predicted, predicted_s),
        "draft_n": sum(lane.stats.num_drafted for lane in lanes),
        "draft_n_accepted": sum(lane.stats.num_accepted for lane in lanes),
    }


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
