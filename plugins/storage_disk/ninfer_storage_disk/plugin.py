"""Entry point of the plugin. Registers one provider; knows nothing about how images are stored."""

from ninfer.api import TierProvider, hookimpl
from ninfer_storage_disk.archive import DiskArchive
from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.tier import DiskTier

NINFER_API = (1, 0)


@hookimpl
def ninfer_storage_tiers() -> list[TierProvider[DiskConfig]]:
    """Offer the kind `disk`."""
    return [
        TierProvider(
            kind="disk",
            summary="Checksummed images in one data file and one journal per model, under a byte cap.",
            config=DiskConfig,
            open=DiskTier.open,
            sample_config=DiskConfig.sample,
            open_archive=DiskArchive.open,
        )
    ]
