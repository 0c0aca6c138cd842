"""Text of one choice: stops, held text, counts."""

from ninfer.core.request import (
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    RequestStats,
    TokenLogprob,
    TokensEvent,
)
from ninfer.server.generation.lane import Lane
from ninfer.text.stop_strings import StopMatcher


class Letters:
    """Token 65 is "A", and so on; what is pushed last is held until the flush if `holds`."""

    def __init__(self, holds: str = ""):
        self.held = holds

    def push(self, token_ids):
        return "".join(map(chr, token_ids))

    def flush(self):
        return self.held


def lane_of(*stops: str, stop_token_ids=frozenset(), holds="") -> Lane:
    request = GenerationRequest(
        request_id="r",
        prompt_token_ids=(1, 2),
        max_tokens=50,
        stop_token_ids=frozenset(stop_token_ids),
    )
    return Lane(0, request, Letters(holds), StopMatcher(stops))


def tokens(text: str, *, logprobs: bool = False) -> TokensEvent:
    ids = tuple(map(ord, text))
    given = tuple(TokenLogprob(token_id=i, logprob=-1.0) for i in ids) if logprobs else ()
    return TokensEvent(request_id="r", token_ids=ids, logprobs=given)


def finished(reason: FinishReason, num_completion_tokens: int = 0) -> FinishedEvent:
    stats = RequestStats(num_prompt_tokens=2, num_completion_tokens=num_completion_tokens)
    return FinishedEvent(request_id="r", reason=reason, stats=stats)


def test_a_stop_token_counts_but_leaves_no_text_and_no_logprob():
    lane = lane_of(stop_token_ids=[ord("Z")])
    delta = lane.push(tokens("ABZ", logprobs=True))
    assert delta.text == "AB"
    assert len(delta.tokens) == 2
    assert lane.num_tokens == 3
    assert lane.finish(finished(FinishReason.STOP)).is_last
    assert lane.finish_reason is FinishReason.STOP


def test_a_stop_in_the_middle_of_an_event_cuts_text_and_count():
    lane = lane_of("CD")
    delta = lane.push(tokens("ABCDEF", logprobs=True))
    assert delta.text == "AB"
    assert lane.is_stopped
    assert lane.num_tokens == 4
    assert [token.text_offset for token in delta.tokens] == [0, 1, 2, 3]
    assert lane.push(tokens("GH")).text == ""
    assert lane.finish(finished(FinishReason.ABORTED, 8)).text == ""
    assert lane.finish_reason is FinishReason.STOP


def test_text_that_was_held_back_comes_with_the_last_event():
    lane = lane_of("XYZ")
    assert lane.push(tokens("AXY")).text == "A"
    assert lane.finish(finished(FinishReason.LENGTH)).text == "XY"
    assert lane.finish_reason is FinishReason.LENGTH
    lane = lane_of("\n")
    assert lane.push(tokens("A\n")).text == "A"
    assert lane.finish(finished(FinishReason.ABORTED)).text == ""


def test_a_stop_found_in_the_last_flush_is_a_stop():
    lane = lane_of("XYZ", holds="Z!")
    assert lane.push(tokens("AXY")).text == "A"
    assert lane.finish(finished(FinishReason.LENGTH)).text == ""
    assert lane.finish_reason is FinishReason.STOP


def test_stats_are_known_before_the_end():
    lane = lane_of()
    lane.push(tokens("AB"))
    assert lane.stats.num_prompt_tokens == 2
    assert lane.stats.num_completion_tokens == 2
