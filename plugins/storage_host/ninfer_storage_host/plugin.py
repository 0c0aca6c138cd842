"""Entry point of the plugin. Registers one provider; knows nothing about how images are stored."""

from ninfer.api import TierProvider, hookimpl
from ninfer_storage_host.config import HostConfig
from ninfer_storage_host.tier import HostTier

NINFER_API = (1, 0)


@hookimpl
def ninfer_storage_tiers() -> list[TierProvider[HostConfig]]:
    """Offer the kind `host`."""
    return [
        TierProvider(
            kind="host",
            summary="Images in a preallocated arena of host memory, pinned where the device can use that.",
            config=HostConfig,
            open=HostTier.open,
            sample_config=HostConfig.sample,
        )
    ]
