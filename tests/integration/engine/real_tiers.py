"""The shipped host and disk tiers at tiny sizes."""

import torch
from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.tier import DiskTier
from ninfer_storage_host.config import HostConfig
from ninfer_storage_host.tier import HostTier

from ninfer.api import TierContext
from ninfer.cache.recovery import by_value
from ninfer.exec.host_memory import HostMemory
from ninfer.obs.clock import SystemClock

DISK_OVERHEAD_BYTES = 4096
"""Room per page for its header in the journal."""


def open_tiers(folder, page_bytes, *, host_pages, disk_pages, state_bytes=0):
    """Open a host arena and a disk store for so many pages; 0 is no such tier."""
    context = TierContext(
        tier_name="t",
        fingerprint=b"m" * 32,
        clock=SystemClock(),
        host_allocator=HostMemory(torch.device("cpu")),
        page_image_bytes=page_bytes,
        state_image_bytes=state_bytes,
        cache_dir=folder,
        by_value=by_value,
    )
    tiers = []
    if host_pages:
        tiers.append(HostTier.open(context, HostConfig(capacity=host_pages * page_bytes)))
    if disk_pages:
        capacity = max(disk_pages * (page_bytes + DISK_OVERHEAD_BYTES), 512 << 10)
        config = DiskConfig(path=folder / "disk", capacity=capacity, sync="none")
        tiers.append(DiskTier.open(context, config))
    return tiers
