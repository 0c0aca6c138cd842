"""Settings of the MTP decoder. Knows nothing about the head."""

from pathlib import Path
from typing import Final

from pydantic import Field

from ninfer.api import PluginConfig

MAX_DRAFT_TOKENS: Final = 5
"""The head was trained for one token ahead; each further one is drafted from its own guess and is less often right."""


class MtpConfig(PluginConfig):
    """Settings of the decoder `mtp`.

    Attributes:
        num_draft_tokens: tokens drafted at most in one step, beside `spec.draft_tokens`.
    """

    num_draft_tokens: int = Field(default=MAX_DRAFT_TOKENS, ge=1, le=MAX_DRAFT_TOKENS)

    @classmethod
    def sample(cls, root: Path) -> "MtpConfig":
        """Return the defaults; `root` is not used."""
        del root
        return cls()
