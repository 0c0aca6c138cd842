"""Log-probabilities as completions show them. Knows nothing about how they are computed."""

from collections.abc import Callable, Sequence

from ninfer.server.generation.lane import ShownToken
from ninfer.server.generation.logprob import finite_logprob


def completion_logprobs(
    tokens: Sequence[ShownToken], token_bytes: Callable[[int], bytes]
) -> dict[str, object]:
    """Return `choices[].logprobs`.

    Args:
        tokens: of the answer.
        token_bytes: bytes of a token.
    """
    names = [_name(token_bytes(token.logprob.token_id)) for token in tokens]
    tops = []
    for name, token in zip(names, tokens, strict=True):
        top = {
            _name(token_bytes(token_id)): finite_logprob(logprob)
            for token_id, logprob in token.logprob.top
        }
        top.setdefault(name, finite_logprob(token.logprob.logprob))
        tops.append(top)
    return {
        "tokens": names,
        "token_logprobs": [finite_logprob(token.logprob.logprob) for token in tokens],
        "top_logprobs": tops,
        "text_offset": [token.text_offset for token in tokens],
    }


def _name(raw: bytes) -> str:
    r"""Spell a token; one that is not whole characters as `bytes:\xe2\x82`, so that no two have one name."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
