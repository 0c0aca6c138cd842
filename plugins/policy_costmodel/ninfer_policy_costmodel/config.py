"""Settings of the cost model. Knows nothing about how they are used."""

from pathlib import Path

from pydantic import Field

from ninfer.api import PluginConfig


class CostModelConfig(PluginConfig):
    """Settings of the policy `costmodel`.

    Attributes:
        half_life_s: idle time after which an object is half as likely to be used again. Twice the recent uses, or
            twice the seconds saved per byte, outweigh this much idle time.
        uses_half_life_s: a use that long before the last one counts half.
        depth_half_life_s: what a doubling of prefill cost outweighs where the cost grows with the position. Less than
            `half_life_s`, since long prompts return later.
        grace_s: an object used more than once is held by its worth for at most this long,
        gaps: and for so many of its own mean gaps between uses beyond that.
        return_probability: chance that an object used once is used again; 0.24 on a public one-hour trace.
        disk_min_uses: uses after which an object is copied to a slow tier ahead of pressure; 1 copies all.
        fast_tier_bytes_per_s: tiers that are read at least this fast get a copy of every idle object.
        learning_rate: weight of a new measurement, 0 to 1.
        recompute_tokens_per_s: fixed prefill speed instead of the measured one; 0 to measure.
        save_calibration: keep what was learned in the cache folder of ninfer.
    """

    half_life_s: float = Field(default=300.0, gt=0)
    uses_half_life_s: float = Field(default=1000.0, gt=0)
    depth_half_life_s: float = Field(default=30.0, ge=0)
    grace_s: float = Field(default=450.0, ge=0)
    gaps: float = Field(default=6.0, ge=0)
    return_probability: float = Field(default=0.24, gt=0, lt=1)
    disk_min_uses: int = Field(default=2, ge=1)
    fast_tier_bytes_per_s: float = Field(default=4e9, gt=0)
    learning_rate: float = Field(default=0.1, gt=0, le=1)
    recompute_tokens_per_s: float = Field(default=0.0, ge=0)
    save_calibration: bool = True

    @classmethod
    def sample(cls, root: Path) -> "CostModelConfig":
        """Return the defaults; files go below the cache folder that the core names, so `root` is not used."""
        del root
        return cls()
