"""Takes sampled tokens over, as far as a request wants them. Changes the lane only."""

from collections.abc import Sequence

from ninfer.core.request import FinishReason
from ninfer.sched.lane import Lane


def take_tokens(lane: Lane, token_ids: Sequence[int]) -> tuple[int, FinishReason | None]:
    """Append tokens up to a stop token or the limit of the request.

    Args:
        lane: whose.
        token_ids: sampled tokens, accepted guesses first.

    Returns:
        How many were taken, and why the request ends, None if it goes on.
    """
    for kept, token in enumerate(token_ids, start=1):
        lane.token_ids.append(token)
        if token in lane.request.stop_token_ids:
            return kept, FinishReason.STOP
        if lane.num_completion_tokens >= lane.request.max_tokens:
            return kept, FinishReason.LENGTH
    return len(token_ids), None
