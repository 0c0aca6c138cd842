"""Settings of the matcher `session`. Knows nothing about how they are used."""

from pathlib import Path

from pydantic import Field

from ninfer.api import PluginConfig


class SessionConfig(PluginConfig):
    """Settings of the matcher `session`.

    Attributes:
        lookback_tokens: a request with a session key considers resume points that lie at most so far before the
            deepest one. Unit: tokens; 0 considers the deepest alone.
        num_anchors: a request without a session key also considers so many resume points spread over its path, the
            gaps doubling towards the start. Unit: resume points.
    """

    lookback_tokens: int = Field(default=8192, ge=0)
    num_anchors: int = Field(default=3, ge=0, le=6)

    @classmethod
    def sample(cls, root: Path) -> "SessionConfig":
        """Return the defaults; `root` is not used, the matcher keeps no files."""
        del root
        return cls()
