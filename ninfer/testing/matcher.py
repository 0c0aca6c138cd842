"""The conformance suite of checkpoint matchers. Knows nothing about any implementation."""

import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import ClassVar, Final, Self

from hypothesis import strategies as st
from typing_extensions import override

from ninfer.api import CheckpointMatcher, Match, MatcherContext, MatcherProvider, PluginConfig
from ninfer.testing.base import ConformanceSuite
from ninfer.testing.matcher_prompts import (
    MAX_TIERS,
    FixedView,
    Prompt,
    SharedView,
    point,
    prompt_of,
    prompts,
)
from ninfer.testing.requirement import requirement
from ninfer.testing.work import bytes_kept_by, instructions_of

MAX_CANDIDATES: Final = 7
_MANY_POINTS: Final = 10_000
_MAX_INSTRUCTIONS_PER_POINT: Final = 100
_MAX_LOOKS: Final = 3
_WARM_UP_PROMPTS: Final = 1_000
_MEASURED_PROMPTS: Final = 500
_MAX_KEPT_BYTES: Final = 16_384
_SESSION_KEYS: Final = (
    "",
    " ",
    "never-seen-before",
    "../../etc/passwd",
    "line\nbreak\x00",
    "schlüssel-\N{GREEK SMALL LETTER OMEGA}-\N{SNOWMAN}",
    "k" * 10_000,
)


class CheckpointMatcherSuite(ConformanceSuite):
    """Numbered tests of the contract `CheckpointMatcher`. A subclass says how to open one."""

    kind: ClassVar[str] = "matcher"

    @abstractmethod
    def open_matcher(self, context: MatcherContext) -> CheckpointMatcher:
        """Return a new matcher."""

    @classmethod
    @override
    def bound_to(cls, provider: MatcherProvider[PluginConfig]) -> type[Self]:
        def open_matcher(self: Self, context: MatcherContext) -> CheckpointMatcher:
            return provider.open(context, provider.sample_config(self.folder))

        return cls.derived(f"Test_{provider.kind}", {"open_matcher": open_matcher})

    def _opened(self) -> closing[CheckpointMatcher]:
        return closing(self.open_matcher(MatcherContext()))

    def _candidates(self, prompt: Prompt) -> list[Match]:
        """Ask a new matcher."""
        with self._opened() as matcher:
            return list(matcher.candidates(prompt.facts, FixedView(prompt.points)))

    @requirement("MATCHER-01")
    def test_answer_is_a_sequence_of_matches(self) -> None:
        """The answer is a sequence of Match."""
        prompt = prompt_of([point(64, 0), point(128, 1), point(192, 1)])
        with self._opened() as matcher:
            answer: object = matcher.candidates(prompt.facts, FixedView(prompt.points))
        what = "answer for a prompt with three resume points"
        if not isinstance(answer, Sequence):
            self.fail(what, got=type(answer), wanted=Sequence)
        classes = {type(each).__name__ for each in answer}
        self.expect_that(what, holds=classes <= {"Match"}, got=classes, wanted="only Match inside")

    @requirement("MATCHER-02")
    def test_prompt_without_resume_points_has_no_candidates(self) -> None:
        """A prompt without resume points has no candidates, and that is no error."""
        for num_tokens in (1, 2, 64, 5_000):
            candidates = self._candidates(prompt_of([], extra_tokens=num_tokens))
            self.expect(f"candidates of {num_tokens} unknown tokens", got=candidates, wanted=[])

    @requirement("MATCHER-03")
    def test_at_most_seven_candidates(self) -> None:
        """There are at most 7 candidates, however many resume points there are."""
        many = [point(64 * (at + 1), at * MAX_TIERS // 50) for at in range(50)]
        up_and_down = [point(64 * (at + 1), at % 20) for at in range(200)]
        for points in (many, up_and_down):
            got = len(self._candidates(prompt_of(points)))
            what = f"candidates of {len(points)} resume points"
            self.expect_that(what, holds=got <= MAX_CANDIDATES, got=got, wanted="at most 7")

    @requirement("MATCHER-04")
    def test_candidates_are_resume_points_of_the_view(self) -> None:
        """Every candidate is one of the view's resume points, unchanged."""

        def check(prompt: Prompt) -> None:
            invented = [each for each in self._candidates(prompt) if each not in prompt.points]
            self.expect("candidates that the store has not proved", got=invented, wanted=[])

        check(prompt_of([point(64, 0), point(100, 1)]))
        self.explore(check, prompt=prompts())

    @requirement("MATCHER-05")
    def test_at_least_one_token_is_left_to_compute(self) -> None:
        """Every candidate leaves at least one token of the prompt to compute."""

        def check(prompt: Prompt) -> None:
            deepest = max((c.position_tokens for c in self._candidates(prompt)), default=0)
            self.expect_that(
                "deepest candidate of a prompt that is known up to its last token",
                holds=deepest < prompt.facts.num_tokens,
                got=deepest,
                wanted=f"less than {prompt.facts.num_tokens}",
                unit="tokens",
            )

        check(prompt_of([point(1, 0)], extra_tokens=1))
        self.explore(check, prompt=prompts(extra_tokens=st.just(1)))

    @requirement("MATCHER-06")
    def test_no_candidate_is_named_twice(self) -> None:
        """No resume point is named twice."""

        def check(prompt: Prompt) -> None:
            positions = [each.position_tokens for each in self._candidates(prompt)]
            self.expect("positions", got=positions, wanted=list(dict.fromkeys(positions)))

        check(prompt_of([point(64, 0)]))
        self.explore(check, prompt=prompts())

    @requirement("MATCHER-07")
    def test_best_candidate_comes_first(self) -> None:
        """A candidate comes before every one that is shallower and reads from no faster tier."""

        def check(prompt: Prompt) -> None:
            candidates = self._candidates(prompt)
            for at, late in enumerate(candidates):
                for early in candidates[:at]:
                    is_deeper = late.position_tokens > early.position_tokens
                    self.expect_that(
                        "order of two candidates",
                        holds=not (is_deeper and late.tier_index <= early.tier_index),
                        got=[early, late],
                        wanted="the deeper one first, it reads from no slower tier",
                    )

        check(prompt_of([point(64, 0), point(128, 0), point(192, 1), point(256, 1)]))
        # Page by page from the device to the slowest tier, then a deeper point that the device holds whole.
        check(prompt_of([*(point(64 * at, at - 1) for at in range(1, 6)), point(384, 0)]))
        self.explore(check, prompt=prompts())

    @requirement("MATCHER-08")
    def test_deepest_point_is_a_candidate_without_a_session_key(self) -> None:
        """Without a session key the deepest resume point is among the candidates."""

        def check(prompt: Prompt) -> None:
            self.expect_that(
                f"candidates of a prompt whose deepest point is {prompt.points[-1]}",
                holds=prompt.points[-1].position_tokens in _positions(self._candidates(prompt)),
                got=_positions(self._candidates(prompt)),
                wanted=f"{prompt.points[-1].position_tokens} among them",
                unit="tokens",
            )

        check(prompt_of([point(64, 0), point(128, 1)]))
        self.explore(check, prompt=prompts())

    @requirement("MATCHER-09")
    def test_same_question_gets_the_same_answer(self) -> None:
        """The same question gets the same answer, whatever was asked in between and of whichever instance."""
        known = [prompt_of([point(64, 0), point(128, 1), point(192, 2)], session_key="a")]

        def check(prompt: Prompt, between: Prompt) -> None:
            with self._opened() as matcher, self._opened() as other:
                answers = [list(matcher.candidates(prompt.facts, FixedView(prompt.points)))]
                list(matcher.candidates(between.facts, FixedView(between.points)))
                answers += [
                    list(each.candidates(prompt.facts, FixedView(prompt.points)))
                    for each in (matcher, matcher, other)
                ]
            for again in answers[1:]:
                self.expect("answer to the same question again", got=again, wanted=answers[0])

        check(known[0], known[0])
        self.explore(check, prompt=prompts(), between=prompts(session_key="b"))

    @requirement("MATCHER-10")
    def test_view_is_not_changed(self) -> None:
        """The view and its points are left as they were."""

        def check(prompt: Prompt) -> None:
            owned = list(prompt.points)
            with self._opened() as matcher:
                list(matcher.candidates(prompt.facts, SharedView(owned)))
            self.expect("points of the view after the call", got=owned, wanted=list(prompt.points))

        check(prompt_of([point(64, 0), point(128, 1), point(192, 0)]))
        self.explore(check, prompt=prompts())

    @requirement("MATCHER-11")
    def test_nothing_is_kept_of_a_prompt(self) -> None:
        """Nothing is kept of a prompt: no view, and no memory that grows with the number of prompts."""
        prompt = prompt_of([point(64, 0), point(128, 1)])
        with self._opened() as matcher:

            def ask(numbers: Iterable[int]) -> None:
                for number in numbers:
                    asked = prompt_of(prompt.points, session_key=f"session-{number:056d}")
                    list(matcher.candidates(asked.facts, FixedView(asked.points)))

            view = FixedView(prompt.points)
            list(matcher.candidates(prompt.facts, view))
            is_gone = weakref.ref(view)
            del view
            self.expect("view of an earlier prompt that is still held", got=is_gone(), wanted=None)
            later = range(_WARM_UP_PROMPTS, _WARM_UP_PROMPTS + _MEASURED_PROMPTS)
            kept = bytes_kept_by(lambda: ask(range(_WARM_UP_PROMPTS)), lambda: ask(later))
        self.expect_that(
            f"memory kept after {_MEASURED_PROMPTS} more prompts, each with its own session key",
            holds=kept <= _MAX_KEPT_BYTES,
            got=kept,
            wanted=f"at most {_MAX_KEPT_BYTES}",
            unit="bytes",
        )

    @requirement("MATCHER-12")
    def test_any_session_key_is_fine(self) -> None:
        """Any session key is fine: unknown, empty, very long, with any characters."""

        def check(session_key: str) -> None:
            points = [point(64, 0), point(128, 1)]
            asked = prompt_of(points, session_key=session_key)
            with self._opened() as matcher:
                try:
                    got = list(matcher.candidates(asked.facts, FixedView(points)))
                except Exception as error:  # noqa: BLE001 - reported with the key that caused it
                    self.fail(f"session key {session_key[:40]!r}", got=error, wanted="an answer")
            unknown = [each for each in got if each not in points]
            self.expect(f"session key {session_key[:40]!r}: invented", got=unknown, wanted=[])

        for session_key in _SESSION_KEYS:
            check(session_key)
        self.explore(check, session_key=st.text(max_size=80))

    @requirement("MATCHER-13")
    def test_ten_thousand_points_are_no_burden(self) -> None:
        """With 10,000 resume points the work stays proportional to their number, and the view is asked rarely."""
        points = [
            point(64 * (at + 1), at * MAX_TIERS // _MANY_POINTS) for at in range(_MANY_POINTS)
        ]
        prompt = prompt_of(points)
        view = FixedView(points)
        limit = _MANY_POINTS * _MAX_INSTRUCTIONS_PER_POINT
        with self._opened() as matcher:
            got = instructions_of(
                lambda: list(matcher.candidates(prompt.facts, view)), limit=limit + 1
            )
        self.expect_that(
            f"work for {_MANY_POINTS} resume points",
            holds=got <= limit,
            got=f"{got} or more" if got > limit else got,
            wanted=f"at most {limit}",
            unit="Python instructions",
        )
        self.expect_that(
            "calls of view.resume_points()",
            holds=view.num_looks <= _MAX_LOOKS,
            got=view.num_looks,
            wanted=f"at most {_MAX_LOOKS}",
        )

    @requirement("MATCHER-14")
    def test_closing_ends_one_instance_only(self) -> None:
        """Closing a matcher leaves no thread behind and other instances working."""
        prompt = prompt_of([point(64, 0), point(128, 0)])
        threads = set(threading.enumerate())
        with self._opened() as other:
            before = list(other.candidates(prompt.facts, FixedView(prompt.points)))
            self.open_matcher(MatcherContext()).close()
            try:
                after = list(other.candidates(prompt.facts, FixedView(prompt.points)))
            except Exception as error:  # noqa: BLE001 - reported with what was done
                self.fail("another instance after a close", got=error, wanted=before)
        what = "number of candidates of another instance after a close"
        self.expect(what, got=len(after), wanted=len(before))
        left = sorted(thread.name for thread in set(threading.enumerate()) - threads)
        self.expect("threads left after close", got=left, wanted=[])


def _positions(candidates: Iterable[Match]) -> list[int]:
    return [each.position_tokens for each in candidates]
