"""A key narrows what is considered; it never loses the deepest resume point and never invents one."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from ninfer_matcher_session.config import SessionConfig
from ninfer_matcher_session.matcher import SessionMatcher
from ninfer_matcher_session.plugin import ninfer_checkpoint_matchers

from ninfer.api import Match, MatcherContext, PromptFacts


@dataclass(frozen=True)
class View:
    points: tuple[Match, ...]

    def resume_points(self):
        return self.points


def match(position: int, tier: int = 0) -> Match:
    return Match(
        position_tokens=position,
        copied_tokens=position % 64,
        is_device_ready=tier == 0,
        tier_index=tier,
    )


def view(*points: tuple[int, int]) -> View:
    return View(tuple(match(position, tier) for position, tier in points))


def ask(seen: View, key: str = "", **settings) -> list[int]:
    matcher = SessionMatcher.open(MatcherContext(), SessionConfig(**settings))
    prompt = PromptFacts(num_tokens=10**9, session_key=key)
    return [found.position_tokens for found in matcher.candidates(prompt, seen)]


LONG = view((64, 0), (1024, 0), (30_000, 1), (90_000, 1), (99_000, 1), (100_000, 2))


def test_a_session_considers_the_end_of_its_path_only():
    assert ask(LONG, "s", lookback_tokens=8192) == [100_000, 99_000]


def test_without_a_key_points_all_along_the_path_are_considered():
    assert ask(LONG, num_anchors=2) == [100_000, 99_000, 30_000, 1024]


def test_no_lookback_leaves_the_deepest_alone():
    assert ask(LONG, "s", lookback_tokens=0) == [100_000]


def test_a_prompt_without_resume_points_has_no_candidates():
    assert ask(view(), "s") == ask(view()) == []


points = st.lists(
    st.tuples(st.integers(1, 10**6), st.integers(0, 3)), max_size=40, unique_by=lambda p: p[0]
).map(lambda found: view(*sorted(found)))
keys = st.sampled_from(["", "s", "another"])


@given(points, keys, st.integers(0, 10**6), st.integers(0, 6))
def test_candidates_are_few_distinct_points_of_the_view_with_the_deepest_first(
    seen, key, lookback, anchors
):
    found = ask(seen, key, lookback_tokens=lookback, num_anchors=anchors)
    offered = [point.position_tokens for point in seen.points]
    assert set(found) <= set(offered)
    assert found == sorted(set(found), reverse=True)
    assert len(found) <= 7
    assert found[:1] == offered[-1:]


@given(points, keys, st.integers(0, 10**6))
def test_a_key_never_widens_the_choice_and_never_reaches_beyond_its_lookback(seen, key, lookback):
    found = ask(seen, key, lookback_tokens=lookback)
    assert set(found) <= set(ask(seen, num_anchors=0)) or not key
    assert all(found[0] - position <= lookback for position in found) or not key


@given(points, keys)
def test_the_answer_depends_on_prompt_and_view_alone(seen, key):
    matcher = SessionMatcher.open(MatcherContext(), SessionConfig())
    prompt = PromptFacts(num_tokens=10**9, session_key=key)
    first = matcher.candidates(prompt, seen)
    matcher.candidates(PromptFacts(num_tokens=5, session_key="other"), LONG)
    assert matcher.candidates(prompt, seen) == first


def test_the_plugin_offers_the_kind():
    (provider,) = ninfer_checkpoint_matchers()
    assert provider.kind == "session"
    matcher = provider.open(MatcherContext(), provider.sample_config(None))
    assert isinstance(matcher, SessionMatcher)
