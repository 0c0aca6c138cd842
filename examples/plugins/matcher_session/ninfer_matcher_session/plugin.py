"""Entry point of the plugin. Registers one provider; knows nothing about matching."""

from ninfer.api import MatcherProvider, hookimpl
from ninfer_matcher_session.config import SessionConfig
from ninfer_matcher_session.matcher import SessionMatcher

NINFER_API = (1, 0)


@hookimpl
def ninfer_checkpoint_matchers() -> list[MatcherProvider[SessionConfig]]:
    """Offer the kind `session`."""
    return [
        MatcherProvider(
            kind="session",
            summary="The end of the path for requests with a session key, the whole path for others.",
            config=SessionConfig,
            open=SessionMatcher.open,
            sample_config=SessionConfig.sample,
        )
    ]
