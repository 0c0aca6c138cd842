"""The conformance suite of speculative decoders. Knows nothing about any implementation; needs no torch."""

import threading
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from hypothesis import strategies as st

from ninfer.api import SpeculativeDecoder, Verdict
from ninfer.testing.chi_square import chi_square_limit, chi_square_of
from ninfer.testing.decoder_drafts import BRANCHING, REPEATING, DecoderDrafts, streams
from ninfer.testing.decoder_harness import (
    MAX_DRAFT_TOKENS,
    Stream,
    guess,
    request,
    run_together,
)
from ninfer.testing.decoder_machine import DecoderMachine
from ninfer.testing.decoder_target import (
    TargetModel,
    probabilities,
    verify_greedy,
    verify_sampled,
)
from ninfer.testing.requirement import requirement
from ninfer.testing.work import bytes_kept_by, instructions_of

_LARGEST_ALPHABET: Final = 20
_NUM_COMPLETION_TOKENS: Final = 30
_NUM_SAMPLED_TOKENS: Final = 3
_SAMPLES_PER_EXAMPLE: Final = 100
_WARM_UP_CYCLES: Final = 40
_CYCLES: Final = 80
_MAX_KEPT_BYTES: Final = 65_536
_LONG_CONTEXT: Final = 16_000
_MAX_INSTRUCTIONS: Final = 100_000
_NUM_SAME_VERDICTS: Final = 300


class SpeculativeDecoderSuite(DecoderDrafts):
    """Numbered tests of the contract `SpeculativeDecoder`. A subclass says how to open one."""

    @requirement("DECODER-06")
    def test_lanes_do_not_influence_each_other(self) -> None:
        """A lane gets the guesses that it would get alone, whatever other lanes hold."""

        def check(own: Sequence[int], other: Sequence[int]) -> None:
            with self.opened() as decoder:
                decoder.open_lane(2)
                alone = Stream(2, own)
                run_together(decoder, [alone])
                decoder.close_lane(2)
                decoder.open_lane(0)
                decoder.open_lane(1)
                beside = Stream(1, own)
                run_together(decoder, [Stream(0, other), beside])
            what = f"guesses for {list(own)} beside a lane with {list(other)}"
            self.expect(what, got=beside.guesses, wanted=alone.guesses)

        check(REPEATING, [*reversed(REPEATING)])
        check(BRANCHING, REPEATING)
        self.explore(check, own=streams(), other=streams())

    @requirement("DECODER-09")
    def test_two_instances_with_one_history_agree(self) -> None:
        """Two instances with the same history give the same guesses."""

        def check(token_ids: Sequence[int]) -> None:
            told: list[list[tuple[int, ...]]] = []
            for _ in range(2):
                with self.opened() as decoder:
                    decoder.open_lane(0)
                    stream = Stream(0, token_ids)
                    run_together(decoder, [stream])
                told.append(stream.guesses)
            self.expect("guesses of a second instance", got=told[1], wanted=told[0])

        check(REPEATING)
        self.explore(check, token_ids=streams())

    @requirement("DECODER-10")
    def test_lane_opened_again_is_clean(self) -> None:
        """A lane that was closed and opened again guesses as one that was never used."""

        def check(own: Sequence[int], before: Sequence[int]) -> None:
            with self.opened() as decoder:
                decoder.open_lane(0)
                fresh = Stream(0, own)
                run_together(decoder, [fresh])
                decoder.close_lane(0)
                decoder.open_lane(1)
                run_together(decoder, [Stream(1, before)])
                decoder.close_lane(1)
                decoder.open_lane(1)
                again = Stream(1, own)
                run_together(decoder, [again])
            what = f"guesses for {list(own)} in a lane that had {list(before)} before"
            self.expect(what, got=again.guesses, wanted=fresh.guesses)

        check(BRANCHING, REPEATING)
        self.explore(check, own=streams(), before=streams())

    @requirement("DECODER-11")
    def test_closed_lane_leaves_no_memory(self) -> None:
        """A closed lane leaves nothing in memory, however many requests there were."""
        with self.opened() as decoder:

            def serve(numbers: Iterable[int]) -> None:
                for number in numbers:
                    decoder.open_lane(number % 3)
                    text = [(at * at + number) % _LARGEST_ALPHABET for at in range(200)]
                    guess(decoder, number % 3, text)
                    decoder.close_lane(number % 3)

            kept = bytes_kept_by(
                lambda: serve(range(_WARM_UP_CYCLES)), lambda: serve(range(_CYCLES))
            )
        self.expect_that(
            f"memory kept after {_CYCLES} more lanes of 200 tokens",
            holds=kept <= _MAX_KEPT_BYTES,
            got=kept,
            wanted=f"at most {_MAX_KEPT_BYTES}",
            unit="bytes",
        )

    @requirement("DECODER-12")
    def test_all_lanes_can_be_open(self) -> None:
        """All lanes below `max_lanes` can be open at once, be it one or many."""
        for max_lanes in (1, 2, 33):
            with self.opened(max_lanes=max_lanes) as decoder:
                lanes = range(max_lanes)
                for lane in lanes:
                    self.attempt(f"opening lane {lane} of {max_lanes}", decoder.open_lane, lane)
                requests = [request(lane, REPEATING) for lane in lanes]
                drafts = self.attempt(f"drafting {max_lanes} lanes", decoder.draft, requests)
                self.expect("number of drafts", got=len(drafts), wanted=max_lanes)

    @requirement("DECODER-13")
    def test_greedy_answers_are_the_same_with_and_without_it(self) -> None:
        """Greedy answers are token for token the same with the decoder and without it."""

        def check(prompts: list[list[int]]) -> None:
            plain = [self._greedy_alone(self.open_target(), prompt) for prompt in prompts]
            target = self.open_target()
            with self.opened(target) as decoder:
                guessed = self._greedy_with(decoder, target, prompts)
            self.expect(f"greedy answers to {prompts}", got=guessed, wanted=plain)

        check([list(REPEATING), list(BRANCHING)])
        prompt = st.lists(st.integers(0, _LARGEST_ALPHABET), min_size=2, max_size=12)
        self.explore(check, prompts=st.lists(prompt, min_size=1, max_size=3))

    def _greedy_alone(self, target: TargetModel, prompt: Sequence[int]) -> list[int]:
        known = list(prompt)
        for _ in range(_NUM_COMPLETION_TOKENS):
            known += verify_greedy(target, known, ())
        return known

    def _greedy_with(
        self, decoder: SpeculativeDecoder, target: TargetModel, prompts: list[list[int]]
    ) -> list[list[int]]:
        """Decode all prompts together, one lane each; the decoder may be asked as long as two tokens are missing."""
        texts = [list(prompt) for prompt in prompts]
        ends = [len(prompt) + _NUM_COMPLETION_TOKENS for prompt in prompts]
        for lane in range(len(texts)):
            decoder.open_lane(lane)
        while running := [lane for lane, text in enumerate(texts) if len(text) < ends[lane]]:
            rooms = {
                lane: min(MAX_DRAFT_TOKENS, ends[lane] - len(texts[lane]) - 1) for lane in running
            }
            requests = [request(lane, texts[lane], room) for lane, room in rooms.items() if room]
            drafts = (
                {draft.lane: draft.token_ids for draft in decoder.draft(requests)}
                if requests
                else {}
            )
            verdicts = []
            for lane in running:
                guesses = drafts.get(lane, ())[: rooms[lane]]
                accepted = verify_greedy(target, texts[lane], guesses)
                texts[lane] += accepted
                if guesses:
                    verdicts.append(
                        Verdict(lane=lane, num_drafted=len(guesses), num_accepted=len(accepted) - 1)
                    )
            if verdicts:
                decoder.verified(verdicts)
        return texts

    @requirement("DECODER-14")
    def test_rejected_guesses_leave_no_trace(self) -> None:
        """After rejections the guesses are those of the accepted tokens alone; only their number may differ."""

        def check(token_ids: Sequence[int]) -> None:
            with self.opened() as decoder:
                decoder.open_lane(0)
                run_together(decoder, [Stream(0, token_ids)])
                lived = guess(decoder, 0, token_ids)
                decoder.close_lane(0)
                decoder.open_lane(1)
                fresh = guess(decoder, 1, token_ids)
            shorter = min(len(lived), len(fresh))
            what = f"guesses after {list(token_ids)}, read step by step"
            self.expect(what, got=lived[:shorter], wanted=fresh[:shorter])

        check(BRANCHING)
        check([1, 2, 1, 3, 1, 4, 1, 2, 1])
        self.explore(check, token_ids=streams())

    @requirement("DECODER-15")
    def test_sampled_answers_are_distributed_as_without_it(self) -> None:
        """Sampled answers have the same distribution with the decoder and without it."""
        target, pristine = self.open_target(), self.open_target()
        prompt = list(REPEATING)
        num_samples = _SAMPLES_PER_EXAMPLE * self.effort.num_examples
        random = Random(20_111_011)  # noqa: S311 - repeatable on purpose
        counts: dict[tuple[int, int], int] = {}
        with self.opened(target) as decoder:
            for _ in range(num_samples):
                first, second = self._sampled_with(decoder, target, prompt, random)
                counts[first, second] = counts.get((first, second), 0) + 1
        expected = {
            (first, second): num_samples * weight * next_weight
            for first, weight in enumerate(probabilities(pristine.logits(prompt)))
            for second, next_weight in enumerate(probabilities(pristine.logits([*prompt, first])))
        }
        statistic, num_cells = chi_square_of(counts, expected)
        limit = chi_square_limit(num_cells - 1)
        self.expect_that(
            f"chi-square of the first two tokens of {num_samples} answers, {num_cells} cells",
            holds=statistic <= limit,
            got=round(statistic, 1),
            wanted=f"at most {limit:.1f}",
        )

    def _sampled_with(
        self, decoder: SpeculativeDecoder, target: TargetModel, prompt: list[int], random: Random
    ) -> tuple[int, int]:
        text = list(prompt)
        decoder.open_lane(0)
        while (room := len(prompt) + _NUM_SAMPLED_TOKENS - len(text)) > 0:
            guesses = guess(decoder, 0, text, room - 1)[: room - 1] if room > 1 else ()
            accepted = verify_sampled(target, text, guesses, random)
            text += accepted
            if guesses:
                told = Verdict(lane=0, num_drafted=len(guesses), num_accepted=len(accepted) - 1)
                decoder.verified([told])
        decoder.close_lane(0)
        return text[len(prompt)], text[len(prompt) + 1]

    @requirement("DECODER-16")
    def test_any_order_of_calls_is_taken(self) -> None:
        """Any legal order of calls is taken, also a verdict on a lane that was closed in between."""
        with self.opened() as decoder:
            decoder.open_lane(0)
            drafted = len(guess(decoder, 0, REPEATING))
            decoder.close_lane(0)
            late = [Verdict(lane=0, num_drafted=max(drafted, 1), num_accepted=0)]
            self.attempt("verified of a lane that is closed", decoder.verified, late)
        self.explore_machine(lambda: DecoderMachine(self))

    @requirement("DECODER-17")
    def test_rejection_of_everything_is_survived(self) -> None:
        """Hundreds of drafts that are rejected whole, or accepted whole, are survived."""
        for is_accepted in (False, True):
            text = list(REPEATING)
            with self.opened() as decoder:
                decoder.open_lane(0)
                for at in range(_NUM_SAME_VERDICTS):
                    what = f"draft {at} after all before were {'accepted' if is_accepted else 'rejected'}"
                    guesses = self.attempt(what, guess, decoder, 0, text)
                    text += guesses if is_accepted else ()
                    text.append((guesses[0] + 1) % 6 if guesses else at % 6)
                    if guesses:
                        num_accepted = len(guesses) if is_accepted else 0
                        told = Verdict(lane=0, num_drafted=len(guesses), num_accepted=num_accepted)
                        self.attempt(f"verdict on {what}", decoder.verified, [told])

    @requirement("DECODER-18")
    def test_shortest_prompts_are_fine(self) -> None:
        """A prompt of one token and a draft of at most one token are fine."""
        for token_ids in ([0], [1], [1, 1]):
            for max_tokens in (1, MAX_DRAFT_TOKENS):
                with self.opened() as decoder:
                    decoder.open_lane(0)
                    what = f"drafting {max_tokens} tokens after {token_ids}"
                    self.attempt(what, guess, decoder, 0, token_ids, max_tokens)

    @requirement("DECODER-19")
    def test_guess_does_not_read_the_whole_context_again(self) -> None:
        """A guess after a long context costs what is new, not another look at all of it."""
        text = [at * at % _LARGEST_ALPHABET for at in range(_LONG_CONTEXT)]
        with self.opened() as decoder:
            decoder.open_lane(0)
            guess(decoder, 0, text)
            longer = request(0, [*text, 1])
            got = instructions_of(lambda: decoder.draft([longer]), limit=_MAX_INSTRUCTIONS + 1)
        self.expect_that(
            f"work for one new token after {_LONG_CONTEXT}",
            holds=got <= _MAX_INSTRUCTIONS,
            got=f"{got} or more" if got > _MAX_INSTRUCTIONS else got,
            wanted=f"at most {_MAX_INSTRUCTIONS}",
            unit="Python instructions",
        )

    @requirement("DECODER-20")
    def test_closing_ends_one_instance_only(self) -> None:
        """Closing a decoder leaves no thread behind and other instances working."""
        threads = set(threading.enumerate())
        with self.opened() as other:
            other.open_lane(0)
            self.opened().__enter__().close()
            self.attempt("drafting with another instance after a close", guess, other, 0, REPEATING)
        left = sorted(thread.name for thread in set(threading.enumerate()) - threads)
        self.expect("threads left after close", got=left, wanted=[])
