"""An engine of the fake model over a real disk tier in a folder, restarted and damaged at will."""

from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.tier import DiskTier

from ninfer.api import TierContext
from ninfer.cache.recovery import by_value
from ninfer.obs.clock import SystemClock
from tests.fakes.model import PAGE_BYTES
from tests.integration.scenarios.conversation import engine

CAPACITY = 2 << 20


def open_disk(folder, *, capacity=CAPACITY, fingerprint=b"m" * 32, files=None):
    context = TierContext(
        tier_name="disk",
        fingerprint=fingerprint,
        clock=SystemClock(),
        host_allocator=None,
        page_image_bytes=PAGE_BYTES,
        by_value=by_value,
    )
    config = DiskConfig(path=folder, capacity=capacity, sync="none")
    return DiskTier(context, config, files or Files())


def started(folder, num_pages=32, *, tiers=(), has_state=False, fingerprint=b"m" * 32, **more):
    """Start an engine whose slowest tier is the disk in `folder`."""
    disk = {name: more.pop(name) for name in ("capacity", "files") if name in more}
    tier = open_disk(folder, fingerprint=fingerprint, **disk)
    return engine(num_pages, *tiers, tier, has_state=has_state, **more)


def stopped(harness):
    """End an engine as a clean shutdown does."""
    harness.check_drained()
    harness.flush()
    harness.close()
    for tier in harness.tiers:
        tier.close()


def killed(harness):
    """End an engine as a crash does: nothing is flushed, files stay as they are."""
    harness.close()
    disk = harness.tiers[-1]
    with disk._store.write_lock:
        disk._store._finalizer()


def folder_bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def data_file(folder):
    (path,) = folder.glob("*/data")
    return path


def journal_file(folder):
    (path,) = folder.glob("*/journal")
    return path
