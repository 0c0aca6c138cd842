"""Settings of the MTP decoder. Knows nothing about the head."""

from pathlib import Path

from pydantic import Field

from ninfer.api import PluginConfig


class MtpConfig(PluginConfig):
    """Settings of the decoder `mtp`.

    Attributes:
        num_draft_tokens: tokens drafted at most in one step.
    """

    num_draft_tokens: int = Field(default=3, ge=1, le=16)

    @classmethod
    def sample(cls, root: Path) -> "MtpConfig":
        """Return the defaults; `root` is not used."""
        del root
        return cls()
