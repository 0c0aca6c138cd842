"""The conformance suite of checkpoint matchers."""

from ninfer_matcher_session.config import SessionConfig
from ninfer_matcher_session.matcher import SessionMatcher

from ninfer.api import CheckpointMatcher, MatcherContext
from ninfer.testing import CheckpointMatcherSuite


class TestSession(CheckpointMatcherSuite):
    def open_matcher(self, context: MatcherContext) -> CheckpointMatcher:
        return SessionMatcher.open(context, SessionConfig())
