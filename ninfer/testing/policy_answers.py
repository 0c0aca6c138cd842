"""Requirements on what a policy answers: values, prices, copies. Knows nothing about any implementation."""

from dataclasses import replace
from itertools import pairwise
from typing import Final

from hypothesis import strategies as st

from ninfer.api import Degraded, ImageFacts, OutcomeFacts, TransferCost
from ninfer.testing.policy_facts import (
    CORNER_FACTS,
    NUM_TIERS,
    ORDINARY_FACTS,
    ORDINARY_HISTORY,
    ORDINARY_OUTCOMES,
    PAGE_BYTES,
    SPEED_LADDER,
    Observation,
    histories,
    image_facts,
    outcome,
    outcomes,
    page,
    state,
    transfer,
    transfers,
    victims,
    ways,
)
from ninfer.testing.policy_harness import PolicyHarness, answers_of, copy_of, teach
from ninfer.testing.requirement import requirement

_RELATIVE: Final = 1e-9


class PolicyAnswers(PolicyHarness):
    """The part of the policy suite that asks questions."""

    @requirement("POLICY-01")
    def test_value_is_a_finite_number(self) -> None:
        """The value of an object is a finite number; minus infinity is allowed for what nothing needs."""
        policy = self.policy()

        def check(facts: ImageFacts) -> None:
            self.expect_value(f"keep_value({facts})", policy.keep_value(facts), facts)

        for facts in CORNER_FACTS:
            check(facts)
        self.explore(check, facts=image_facts())

    @requirement("POLICY-02")
    def test_dead_object_is_worth_less_than_a_live_one(self) -> None:
        """An object that no resume point needs is worth less than every one that some resume point needs."""
        policy = self.policy()

        def check(dead: ImageFacts, live: ImageFacts) -> None:
            low = policy.keep_value(replace(dead, is_reachable=False))
            high = policy.keep_value(live)
            self.expect_that(
                f"value of a dead object beside {live}",
                holds=low < high,
                got=low,
                wanted=f"less than {high}",
            )

        check(page(), page())
        check(page(last_use_s=1_000_000.0, num_uses=1_000), page(last_use_s=0.0, last_use_index=0))
        self.explore(check, dead=image_facts(), live=image_facts(is_reachable=True))

    @requirement("POLICY-03")
    def test_same_question_gets_the_same_answer(self) -> None:
        """Between observations the same question gets the same answer, whatever was asked in between."""

        def check(facts: ImageFacts, priced: OutcomeFacts) -> None:
            with self.opened() as policy:
                values = [policy.keep_value(facts)]
                prices = [policy.price_s(copy_of(priced))]
                first = answers_of(policy)
                values.append(policy.keep_value(facts))
                prices.append(policy.price_s(copy_of(priced)))
                again = answers_of(policy)
            self.expect(f"keep_value({facts}) asked again", got=values[1], wanted=values[0])
            self.expect(f"price_s({priced}) asked again", got=prices[1], wanted=prices[0])
            self.expect("the ordinary questions asked again", got=again, wanted=first)

        check(page(), ORDINARY_OUTCOMES[-1])
        self.explore(check, facts=image_facts(), priced=outcomes())

    @requirement("POLICY-04")
    def test_later_used_object_is_worth_no_less(self) -> None:
        """Of two objects that are otherwise equal the later used one is worth no less."""
        policy = self.policy()

        def check(facts: ImageFacts, later_s: float, num_between: int) -> None:
            later = replace(
                facts,
                last_use_s=facts.last_use_s + later_s,
                last_use_index=facts.last_use_index + num_between,
            )
            low, high = policy.keep_value(facts), policy.keep_value(later)
            self.expect_that(
                f"value of {facts} if used {later_s} s and {num_between} uses later",
                holds=high >= low,
                got=high,
                wanted=f"at least {low}",
            )

        for ordinary in (*ORDINARY_FACTS, state(lost_tokens=64)):
            check(ordinary, 30.0, 10)
        seconds = st.floats(0.0, 100_000.0)
        self.explore(
            check, facts=image_facts(), later_s=seconds, num_between=st.integers(1, 1_000_000)
        )

    @requirement("POLICY-05")
    def test_passing_time_alone_changes_no_answer(self) -> None:
        """Time that passes changes no answer by itself: values age by comparison, not by being asked again."""
        policy = self.policy()
        teach(policy, ORDINARY_HISTORY)
        before = answers_of(policy)
        self.clock.advance(3_600.0)
        after = answers_of(policy)
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            if isinstance(old, float) and isinstance(new, float):
                is_same = old == new or abs(old - new) <= _RELATIVE * max(abs(old), abs(new))
            else:
                is_same = old == new
            what = f"answer {number} to the ordinary questions an hour later"
            self.expect_that(what, holds=is_same, got=new, wanted=f"{old} as before")

    @requirement("POLICY-06")
    def test_price_is_finite_and_not_negative(self) -> None:
        """A price is a finite number of seconds and not negative."""
        policy = self.policy()

        def check(priced: OutcomeFacts) -> None:
            self.expect_price(f"price_s({priced})", policy.price_s(copy_of(priced)))

        check(outcome(resume_tokens=100_000, prefill_tokens=1))
        corners = [Degraded(facts=facts, target_index=None) for facts in CORNER_FACTS]
        check(outcome(transfers=[transfer(1 << 44, 2, 0)], degraded=corners))
        self.explore(check, priced=outcomes())

    @requirement("POLICY-07")
    def test_more_bytes_are_never_cheaper(self) -> None:
        """Moving more bytes is never cheaper: larger transfers, more transfers, a copy on the device."""

        def check(
            priced: OutcomeFacts,
            way: tuple[int, int],
            sizes: tuple[int, int],
            history: list[Observation],
        ) -> None:
            small, large = (transfer(size, *way) for size in sorted(sizes))
            moved = list(priced.transfers)
            more: list[list[TransferCost]] = [[*moved, small], [*moved, large]]
            with self.taught(history) as policy:
                less = priced
                for transfers_then in more:
                    then = replace(priced, transfers=transfers_then)
                    self.expect_not_cheaper("more bytes to move", policy, less, then)
                    less = then
                copied = replace(priced, copy_bytes=priced.copy_bytes + PAGE_BYTES)
                self.expect_not_cheaper("a page copied on the device", policy, priced, copied)

        for way in ((1, 0), (2, 0), (0, 1), (0, 2), (1, 2)):
            for sizes in pairwise(SPEED_LADDER):
                check(outcome(), way, sizes, [])
        size = st.integers(1, 1 << 42)
        self.explore(
            check, priced=outcomes(), way=ways(), sizes=st.tuples(size, size), history=histories()
        )

    @requirement("POLICY-08")
    def test_more_prefill_is_never_cheaper(self) -> None:
        """Prefilling more tokens is never cheaper, whether the prompt is longer or resumes earlier."""

        def check(priced: OutcomeFacts, more_tokens: int, history: list[Observation]) -> None:
            longer = replace(priced, prefill_tokens=priced.prefill_tokens + more_tokens)
            earlier_tokens = min(more_tokens, priced.resume_tokens)
            earlier = replace(
                priced,
                resume_tokens=priced.resume_tokens - earlier_tokens,
                prefill_tokens=priced.prefill_tokens + earlier_tokens,
            )
            with self.taught(history) as policy:
                self.expect_not_cheaper("a longer prompt", policy, priced, longer)
                self.expect_not_cheaper("an earlier start", policy, priced, earlier)

        for tokens in (3 << exponent for exponent in range(21)):
            check(outcome(resume_tokens=tokens, prefill_tokens=tokens), tokens, [])
        self.explore(
            check,
            priced=outcomes(),
            more_tokens=st.integers(1, 1_000_000),
            history=histories(),
        )

    @requirement("POLICY-09")
    def test_more_loss_is_never_cheaper(self) -> None:
        """Degrading more is never cheaper: one more victim, or a victim of which nothing remains."""

        def check(priced: OutcomeFacts, victim: Degraded, history: list[Observation]) -> None:
            more = replace(priced, degraded=[*priced.degraded, victim])
            gone = replace(priced, degraded=[*priced.degraded, replace(victim, target_index=None)])
            with self.taught(history) as policy:
                self.expect_not_cheaper("one more victim", policy, priced, more)
                self.expect_not_cheaper("nothing left of a victim", policy, more, gone)

        valuable = Degraded(facts=state(), target_index=None)
        cheap = Degraded(facts=page(last_use_s=0.0, last_use_index=0), target_index=1)
        check(outcome(degraded=[valuable]), cheap, [])
        check(outcome(degraded=[cheap]), valuable, [])
        self.explore(check, priced=outcomes(), victim=victims(), history=histories())

    @requirement("POLICY-10")
    def test_two_instances_with_one_history_agree(self) -> None:
        """Two instances with the same configuration and the same history give the same answers."""
        with self.opened() as one, self.opened() as other:
            self.expect(
                "answers of a second instance", got=answers_of(other), wanted=answers_of(one)
            )
            for policy in (one, other):
                teach(policy, ORDINARY_HISTORY)
                policy.evicted(1_000.0)
            what = "answers of a second instance after the same history"
            self.expect(what, got=answers_of(other), wanted=answers_of(one))

    @requirement("POLICY-11")
    def test_copies_are_wanted_or_not_and_never_of_dead_objects(self) -> None:
        """A copy is wanted or not, as a bool; none is wanted of an object that no resume point needs."""
        policy = self.policy()

        def check(facts: ImageFacts) -> None:
            for target in range(facts.tier_index + 1, NUM_TIERS):
                wanted: object = policy.wants_copy(facts, target)
                what = f"wants_copy({facts}, {target})"
                self.expect(what, got=type(wanted), wanted=bool)
                if not facts.is_reachable:
                    self.expect(what, got=wanted, wanted=False)

        for facts in ORDINARY_FACTS:
            check(facts)
            check(replace(facts, is_reachable=False))
        self.explore(check, facts=image_facts())

    @requirement("POLICY-12")
    def test_questions_are_left_as_they_were(self) -> None:
        """What a question hands over is left as it was."""
        policy = self.policy()

        def check(moved: list[TransferCost], degraded: list[Degraded]) -> None:
            priced = OutcomeFacts(
                resume_tokens=64,
                prefill_tokens=64,
                transfers=moved,
                copy_bytes=0,
                degraded=degraded,
            )
            before = copy_of(priced)
            policy.price_s(priced)
            self.expect("outcome after price_s", got=priced, wanted=before)

        check(list(ORDINARY_OUTCOMES[2].transfers), list(ORDINARY_OUTCOMES[-1].degraded))
        self.explore(
            check,
            moved=st.lists(transfers(), max_size=4),
            degraded=st.lists(victims(), max_size=4),
        )
