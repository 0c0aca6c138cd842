"""Prompts and fields become engine requests. Knows nothing about events or answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer.core.errors import ContextLengthExceeded, RequestError
from ninfer.core.request import CacheParams, GenerationRequest
from ninfer.core.retention import Retention
from ninfer.server.context import ServerContext
from ninfer.server.generation.schema import GenerationFields


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt.

    Attributes:
        token_ids: at least one.
        text: what they were made of, empty if tokens were given.
        marker_tokens: positions worth a checkpoint.
        retention: how long its context is to stay reusable, None for the configured default.
    """

    token_ids: Sequence[int]
    text: str = ""
    marker_tokens: tuple[int, ...] = ()
    retention: Retention | None = None


def build_requests(
    context: ServerContext,
    fields: GenerationFields,
    prompts: Sequence[Prompt],
    *,
    answer_id: str,
    max_tokens: int | None,
    num_logprobs: int | None,
    param: str,
) -> list[GenerationRequest]:
    """Return the engine requests of an HTTP request: all choices of the first prompt, then of the next.

    Args:
        context: of the server.
        fields: as the client sent them.
        prompts: at least one.
        answer_id: prefix of the ids.
        max_tokens: completion limit, None for what the context leaves.
        num_logprobs: alternatives per token, None for no log-probabilities.
        param: the field that prompts come from.

    Raises:
        ContextLengthExceeded: a prompt does not fit.
        RequestError: a field is wrong.
    """
    info = context.engine.model_info
    fields.check(vocab_size=info.vocab_size)
    stop_token_ids = frozenset(fields.stop_token_ids or ())
    if not fields.ignore_eos:
        stop_token_ids |= context.text.eos_token_ids
    requests = []
    for prompt_index, prompt in enumerate(prompts):
        limit = completion_limit(
            len(prompt.token_ids), max_tokens, info.max_context_tokens, param=param
        )
        first_id = f"{answer_id}-{prompt_index * fields.num_choices}"
        for choice in range(fields.num_choices):
            number = prompt_index * fields.num_choices + choice
            requests.append(
                GenerationRequest(
                    request_id=f"{answer_id}-{number}",
                    prompt_token_ids=prompt.token_ids,
                    max_tokens=limit,
                    sampling=fields.sampling(
                        vocab_size=info.vocab_size,
                        defaults=context.text.sampling_defaults,
                        num_logprobs=num_logprobs,
                        choice=choice,
                    ),
                    stop_token_ids=stop_token_ids,
                    cache=CacheParams(
                        is_enabled=fields.uses_cache,
                        salt=fields.cache_salt or "",
                        session_key=fields.prompt_cache_key or "",
                        marker_tokens=prompt.marker_tokens,
                        retention=prompt.retention,
                    ),
                    fork_of=None if choice == 0 else first_id,
                )
            )
    return requests


def completion_limit(
    num_prompt_tokens: int, max_tokens: int | None, max_context_tokens: int, *, param: str
) -> int:
    """Return how many tokens may be generated: what was asked, at most what the context leaves.

    Args:
        num_prompt_tokens: length of the prompt.
        max_tokens: what was asked; None for all that is left, 0 for none (the prompt is computed only).
        max_context_tokens: prompt and completion together.
        param: the field that the prompt comes from.

    Raises:
        RequestError: the prompt is empty.
        ContextLengthExceeded: the prompt leaves no room.
    """
    if num_prompt_tokens == 0:
        raise RequestError("The prompt is empty: it has no tokens.", param=param)
    remaining = max_context_tokens - num_prompt_tokens
    if remaining < 0 or (remaining == 0 and max_tokens != 0):
        raise ContextLengthExceeded(
            f"This server's context is {max_context_tokens} tokens, but the prompt has "
            f"{num_prompt_tokens} tokens and the answer needs at least "
            f"{0 if max_tokens == 0 else 1}.",
            param=param,
        )
    return remaining if max_tokens is None else min(max_tokens, remaining)
