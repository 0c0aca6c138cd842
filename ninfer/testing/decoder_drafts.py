"""Requirements on the answer to one call of a decoder. Knows nothing about any implementation."""

import gc
import weakref
from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from ninfer.api import Draft, DraftRequest, SpeculationError, SpeculativeDecoder
from ninfer.testing.decoder_harness import MAX_DRAFT_TOKENS, DecoderHarness, guess, request
from ninfer.testing.requirement import requirement

REPEATING: Final = (3, 1, 4, 1, 5, 3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5, 9, 2, 3, 1, 4)
"""Text that is worth guessing, with places where the guess is wrong."""
BRANCHING: Final = (1, 2, 1, 3, 1, 4, 1, 2, 3, 1, 5, 2, 1, 2, 6, 1, 2, 1, 7, 1, 3, 2, 1)
"""Text in which what followed last time seldom follows again."""


class BorrowedTokens(list[int]):
    """A list that tells whether somebody still holds it."""


def streams(alphabet: int = 6) -> st.SearchStrategy[list[int]]:
    """Draw texts of few different tokens, so that guesses are often right and often wrong."""
    return st.lists(st.integers(0, alphabet - 1), min_size=3, max_size=40)


class DecoderDrafts(DecoderHarness):
    """The part of the decoder suite that looks at single calls."""

    @requirement("DECODER-01")
    def test_decoder_opens_or_refuses_by_name(self) -> None:
        """A decoder opens, or refuses the model with a `SpeculationError` that names its family."""
        access = self.model_access(self.open_target())
        try:
            opened: object = self.open_decoder(self.context(access))
        except SpeculationError as refusal:
            self.expect_that(
                "text of the refusal",
                holds=access.family in str(refusal),
                got=str(refusal),
                wanted=f"the family {access.family!r} in it",
            )
            return
        except Exception as error:  # noqa: BLE001 - reported as the wrong error
            self.fail("opening", got=error, wanted=SpeculationError)
        if not isinstance(opened, SpeculativeDecoder):
            self.fail("opened decoder", got=type(opened), wanted=SpeculativeDecoder)
        opened.close()

    @requirement("DECODER-02")
    def test_one_draft_per_request_in_order(self) -> None:
        """`draft` returns a list of one Draft per request, in the order of the requests."""

        def check(lanes: Sequence[int]) -> None:
            with self.opened() as decoder:
                for lane in lanes:
                    decoder.open_lane(lane)
                answer: object = decoder.draft([request(lane, REPEATING) for lane in lanes])
            if not isinstance(answer, list) or not all(isinstance(d, Draft) for d in answer):
                self.fail(f"answer for lanes {lanes}", got=answer, wanted="a list of Draft")
            got = [draft.lane for draft in answer]
            self.expect(f"lanes of the answer for lanes {lanes}", got=got, wanted=list(lanes))
            classes = {type(draft.token_ids) for draft in answer}
            self.expect_that(
                "guesses", holds=classes == {tuple}, got=classes, wanted="a tuple in each draft"
            )

        for lanes in ([0], [2, 0, 1]):
            check(lanes)
        self.explore(check, lanes=st.permutations([0, 1, 2]))

    @requirement("DECODER-03")
    def test_no_draft_is_longer_than_asked(self) -> None:
        """No draft is longer than `max_tokens`."""

        def check(token_ids: Sequence[int], max_tokens: int) -> None:
            with self.opened() as decoder:
                decoder.open_lane(0)
                got = len(guess(decoder, 0, token_ids, max_tokens))
            self.expect_that(
                f"length of a draft after {list(token_ids)}",
                holds=got <= max_tokens,
                got=got,
                wanted=f"at most {max_tokens}",
                unit="tokens",
            )

        for max_tokens in range(1, MAX_DRAFT_TOKENS + 1):
            check(REPEATING, max_tokens)
        self.explore(check, token_ids=streams(), max_tokens=st.integers(1, MAX_DRAFT_TOKENS))

    @requirement("DECODER-04")
    def test_guesses_are_token_ids_of_the_vocabulary(self) -> None:
        """Every guess is an int in [0, vocab_size), also after tokens at the end of the vocabulary."""
        vocab_size = self.open_target().vocab_size

        def check(token_ids: Sequence[int]) -> None:
            with self.opened() as decoder:
                decoder.open_lane(0)
                got = guess(decoder, 0, token_ids)
            foreign = [each for each in got if type(each) is not int or not 0 <= each < vocab_size]
            what = f"guesses after {list(token_ids)} that are no ids of {vocab_size} tokens"
            self.expect(what, got=foreign, wanted=[])

        last = vocab_size - 1
        check([last, last, last, last])
        check([0, last] * 8)
        self.explore(check, token_ids=st.lists(st.integers(max(last - 3, 0), last), min_size=2))

    @requirement("DECODER-05")
    def test_no_requests_give_no_drafts(self) -> None:
        """No requests give no drafts, with lanes open or without."""
        with self.opened() as decoder:
            for when in ("without lanes", "with an open lane"):
                got = self.attempt(f"draft([]) {when}", decoder.draft, [])
                self.expect(f"draft([]) {when}", got=got, wanted=[])
                decoder.open_lane(0)

    @requirement("DECODER-07")
    def test_tokens_are_not_changed(self) -> None:
        """The token list of a request is left as it was."""

        def check(token_ids: Sequence[int]) -> None:
            lent = list(token_ids)
            with self.opened() as decoder:
                decoder.open_lane(0)
                decoder.draft([DraftRequest(lane=0, token_ids=lent, max_tokens=3)])
            self.expect("tokens of the request after the call", got=lent, wanted=list(token_ids))

        check(REPEATING)
        self.explore(check, token_ids=streams())

    @requirement("DECODER-08")
    def test_tokens_are_not_kept(self) -> None:
        """The token list of a request is not held after the call; it is lent, and goes on growing."""
        with self.opened() as decoder:
            decoder.open_lane(0)
            lent = BorrowedTokens(REPEATING)
            held = weakref.ref(lent)
            decoder.draft([DraftRequest(lane=0, token_ids=lent, max_tokens=3)])
            del lent
            if held() is not None:
                gc.collect()
            got = "the list" if held() is not None else "nothing"
        self.expect("held after the call", got=got, wanted="nothing")
