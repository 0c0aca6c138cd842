"""Any legal order of calls of a decoder, by hypothesis. Knows nothing about what guesses are worth."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from typing_extensions import override

from ninfer.api import Verdict
from ninfer.testing.decoder_harness import MAX_DRAFT_TOKENS, MAX_LANES, DecoderHarness, request

LANES = range(MAX_LANES - 1)
TEXT = st.lists(st.integers(0, 5), min_size=1, max_size=6)


class DecoderMachine(RuleBasedStateMachine):
    """Opens, closes and drafts lanes; every draft is judged at once, by any count, after lanes may have closed.

    Args:
        suite: opens the decoder and reports what it does wrong.
    """

    def __init__(self, suite: DecoderHarness) -> None:
        """Start with no lane open."""
        super().__init__()
        self._suite = suite
        self._decoder = suite.opened().__enter__()
        self._texts: dict[int, list[int]] = {}

    @rule(data=st.data(), prompt=TEXT)
    @precondition(lambda self: len(self._texts) < len(LANES))
    def open_lane(self, data: Any, prompt: list[int]) -> None:  # noqa: ANN401 - hypothesis' own
        """Begin a lane with a prompt."""
        lane = data.draw(st.sampled_from([lane for lane in LANES if lane not in self._texts]))
        self._suite.attempt(f"open_lane({lane})", self._decoder.open_lane, lane)
        self._texts[lane] = list(prompt) * 2

    @rule(data=st.data())
    @precondition(lambda self: self._texts)
    def close_lane(self, data: Any) -> None:  # noqa: ANN401 - hypothesis' own
        """End a lane."""
        lane = data.draw(st.sampled_from(sorted(self._texts)))
        self._suite.attempt(f"close_lane({lane})", self._decoder.close_lane, lane)
        del self._texts[lane]

    @rule(data=st.data(), new_tokens=TEXT)
    @precondition(lambda self: self._texts)
    def draft(self, data: Any, new_tokens: list[int]) -> None:  # noqa: ANN401 - hypothesis' own
        """Draft some lanes, accept any number of each, maybe end one, then report."""
        lanes = data.draw(st.lists(st.sampled_from(sorted(self._texts)), min_size=1, unique=True))
        liked = [data.draw(st.integers(0, MAX_DRAFT_TOKENS)) for _ in lanes]
        is_last = data.draw(st.booleans())
        requests = [request(lane, self._texts[lane]) for lane in lanes]
        drafts = self._suite.attempt(f"draft of lanes {lanes}", self._decoder.draft, requests)
        verdicts = []
        for lane, draft, num_liked in zip(lanes, drafts, liked, strict=False):
            num_accepted = min(num_liked, len(draft.token_ids))
            self._texts[lane] += [*draft.token_ids[:num_accepted], *new_tokens[:1]]
            if draft.token_ids:
                verdicts.append(
                    Verdict(lane=lane, num_drafted=len(draft.token_ids), num_accepted=num_accepted)
                )
        if is_last:
            ended = lanes[0]
            self._suite.attempt(f"close_lane({ended})", self._decoder.close_lane, ended)
            del self._texts[ended]
        if verdicts:
            self._suite.attempt(f"verified({verdicts})", self._decoder.verified, verdicts)

    @override
    def teardown(self) -> None:
        """Close the decoder."""
        self._decoder.close()
