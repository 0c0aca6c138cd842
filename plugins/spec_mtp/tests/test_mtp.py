"""The MTP decoder: drafts token by token for all lanes together, and refuses with advice."""

from types import SimpleNamespace

import pytest
import torch
from ninfer_spec_mtp.config import MtpConfig
from ninfer_spec_mtp.plugin import ninfer_speculative_decoders

from ninfer.api import DecoderContext, DraftRequest, LaneRows, SpeculationError

RUNS = ((0, 4),)


class CountingHead:
    """A head whose next token is one more than the last; its result is that token. Keeps what it was shown."""

    def __init__(self):
        self.seen = {}

    def extend(self, lanes, hidden):
        assert len(hidden) == sum(len(lane.token_ids) for lane in lanes)
        for lane in lanes:
            for position, token in enumerate(lane.token_ids, start=lane.start_tokens):
                self.seen[lane.lane, position] = token
        return torch.tensor([[float(lane.token_ids[-1])] for lane in lanes])

    def choose(self, hidden):
        return [int(row) + 1 for row in hidden]


def open_with(*, head=None, family="qwen3_5", max_draft_tokens=4, config=None):
    model = SimpleNamespace(
        family=family, vocab_size=99, has_mtp_head=head is not None, draft_head=head, module=None
    )
    (provider,) = ninfer_speculative_decoders()
    assert provider.kind == "mtp"
    return provider.open(
        DecoderContext(clock=None, model=model, max_lanes=3, max_draft_tokens=max_draft_tokens),
        config or MtpConfig(),
    )


def follow(decoder, **lanes):
    """Show tokens from position 1 on, by lane name `lane0`."""
    rows = [
        LaneRows(lane=int(name[4:]), start_tokens=1, token_ids=tokens[1:], runs=RUNS)
        for name, tokens in lanes.items()
    ]
    decoder.follow(rows, torch.zeros(sum(len(row.token_ids) for row in rows), 1))


def ask(decoder, **lanes):
    """Return drafts for (tokens, most) by lane name."""
    requests = [
        DraftRequest(lane=int(name[4:]), token_ids=tokens, max_tokens=most)
        for name, (tokens, most) in lanes.items()
    ]
    drafts = decoder.draft(requests)
    assert [draft.lane for draft in drafts] == [request.lane for request in requests]
    return [draft.token_ids for draft in drafts]


def test_each_lane_drafts_as_many_tokens_as_it_may():
    decoder = open_with(head=CountingHead())
    follow(decoder, lane0=[1, 2, 3], lane2=[5, 6])
    assert ask(decoder, lane0=([1, 2, 3], 3), lane2=([5, 6], 1)) == [(4, 5, 6), (7,)]
    assert ask(decoder, lane2=([5, 6], 9), lane0=([1, 2, 3], 2)) == [(7, 8, 9, 10), (4, 5)]


def test_guesses_are_shown_to_the_head_behind_the_accepted_tokens():
    head = CountingHead()
    decoder = open_with(head=head)
    follow(decoder, lane1=[1, 2, 3])
    ask(decoder, lane1=([1, 2, 3], 4))
    assert head.seen == {(1, 1): 2, (1, 2): 3, (1, 3): 4, (1, 4): 5, (1, 5): 6}


def test_a_lane_whose_last_token_the_head_has_not_seen_gets_no_draft():
    decoder = open_with(head=CountingHead())
    follow(decoder, lane0=[1, 2, 3])
    assert ask(decoder, lane0=([1, 2, 3, 9], 3), lane1=([1, 2], 3)) == [(), ()]
    decoder.open_lane(0)
    assert ask(decoder, lane0=([1, 2, 3], 3)) == [()]


def test_the_configured_length_bounds_drafts():
    decoder = open_with(head=CountingHead(), config=MtpConfig(num_draft_tokens=2))
    follow(decoder, lane0=[1, 2, 3])
    assert ask(decoder, lane0=([1, 2, 3], 4)) == [(4, 5)]


def test_a_model_without_a_head_is_refused_with_advice():
    with pytest.raises(SpeculationError) as caught:
        open_with(family="llama")
    for part in ("llama", "no multi-token-prediction head", "qwen3_5", '"ngram"', '"off"'):
        assert part in str(caught.value)


@pytest.mark.parametrize("max_draft_tokens", [6, 16])
def test_more_drafts_than_the_head_is_good_for_are_refused(max_draft_tokens):
    with pytest.raises(SpeculationError, match=rf"draft_tokens = {max_draft_tokens}.*1 to 5"):
        open_with(head=CountingHead(), max_draft_tokens=max_draft_tokens)


def test_sample_config_is_valid(tmp_path):
    (provider,) = ninfer_speculative_decoders()
    assert provider.sample_config(tmp_path) == MtpConfig()
    for wrong in (0, 6):
        with pytest.raises(ValueError):
            MtpConfig(num_draft_tokens=wrong)
