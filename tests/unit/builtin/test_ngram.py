"""The decoder `ngram` against a brute-force search."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.api import DraftRequest
from ninfer.builtin.ngram import NgramConfig, NgramDecoder


def brute_force(tokens, config, max_tokens):
    """What followed the latest earlier place of the longest known ending."""
    longest = max(config.min_ngram, config.max_ngram)
    for length in range(longest, config.min_ngram - 1, -1):
        if len(tokens) <= length:
            continue
        ending = tokens[-length:]
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == ending:
                return tuple(tokens[end : end + max_tokens])
    return ()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_guesses_are_those_of_a_search_however_the_tokens_arrive(pieces, low, high, max_tokens):
    config = NgramConfig(min_ngram=low, max_ngram=high)
    decoder = NgramDecoder(config)
    decoder.open_lane(3)
    decoder.open_lane(1)
    tokens, other = [], []
    for piece in pieces:
        tokens += piece
        other += piece[::-1]
        drafts = decoder.draft([
            DraftRequest(lane=3, token_ids=tokens, max_tokens=max_tokens),
            DraftRequest(lane=1, token_ids=other, max_tokens=1),
        ])
        assert [draft.lane for draft in drafts] == [3, 1]
        assert drafts[0].token_ids == brute_force(tokens, config, max_tokens)
        assert drafts[1].token_ids == brute_force(other, config, 1)
        assert len(drafts[0].token_ids) <= max_tokens


def test_a_lane_opened_again_knows_nothing_of_the_request_before():
    decoder = NgramDecoder(NgramConfig(min_ngram=1))
    decoder.open_lane(0)
    decoder.draft([DraftRequest(lane=0, token_ids=[1, 2, 1], max_tokens=3)])
    decoder.close_lane(0)
    decoder.open_lane(0)
    draft = decoder.draft([DraftRequest(lane=0, token_ids=[5, 1], max_tokens=3)])[0]
    assert draft.token_ids == ()
