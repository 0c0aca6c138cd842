"""Settings of the policy `marconi`. Knows nothing about how they are used."""

from pathlib import Path

from pydantic import Field

from ninfer.api import PluginConfig


class MarconiConfig(PluginConfig):
    """Settings of the policy `marconi`.

    Attributes:
        alpha_s: how much recency the best FLOP efficiency is worth. Unit: seconds; 0 is plain LRU.
        reuse_probability: chance that an object is used again, for the price of giving it up. Unit: 0 to 1.
        slow_tier_min_uses: uses after which an idle object is copied further down than the next tier. Unit: uses.
    """

    alpha_s: float = Field(default=300.0, ge=0, allow_inf_nan=False)
    reuse_probability: float = Field(default=0.24, gt=0, lt=1)
    slow_tier_min_uses: int = Field(default=2, ge=1)

    @classmethod
    def sample(cls, root: Path) -> "MarconiConfig":
        """Return the defaults; `root` is not used, the policy keeps no files."""
        del root
        return cls()
