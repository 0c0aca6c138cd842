"""Entry point of the plugin. Registers one provider; opens no connection."""

from ninfer.api import TierProvider, hookimpl
from ninfer_tier_redis.config import RedisConfig
from ninfer_tier_redis.tier import RedisTier

NINFER_API = (1, 0)


@hookimpl
def ninfer_storage_tiers() -> list[TierProvider[RedisConfig]]:
    """Offer the kind `redis`."""
    return [
        TierProvider(
            kind="redis",
            summary="Checksummed images on a Redis-compatible server, shared by several machines.",
            config=RedisConfig,
            open=RedisTier.open,
            sample_config=RedisConfig.sample,
        )
    ]
