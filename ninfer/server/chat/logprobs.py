"""Log-probabilities as chat completions show them. Knows nothing about how they are computed."""

from collections.abc import Callable, Sequence

from ninfer.server.generation.lane import ShownToken
from ninfer.server.generation.logprob import finite_logprob


def chat_logprobs(
    tokens: Sequence[ShownToken], token_bytes: Callable[[int], bytes]
) -> dict[str, object]:
    """Return `choices[].logprobs`.

    Args:
        tokens: of the answer.
        token_bytes: bytes of a token.
    """

    def entry(token_id: int, logprob: float) -> dict[str, object]:
        raw = token_bytes(token_id)
        return {
            "token": raw.decode("utf-8", "replace"),
            "logprob": finite_logprob(logprob),
            "bytes": list(raw),
        }

    content = [
        {
            **entry(token.logprob.token_id, token.logprob.logprob),
            "top_logprobs": [entry(*alternative) for alternative in token.logprob.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}
