"""The disk tier keeps the contract of storage tiers, on files that fail too."""

from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.tier import DiskTier

from ninfer.testing import StorageTierSuite
from plugins.storage_disk.tests.faulty_files import FaultyFiles


class SuiteFiles(FaultyFiles):
    """Lets the suite decide which change fails."""

    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        faults.at_death(self.die)

    def change(self, partly=lambda: None):
        self.faults.change(partly)


class TestDiskTier(StorageTierSuite):
    def open_tier(self, root):
        return self.open_on(root, Files())

    def open_tier_of(self, root, capacity_bytes):
        return self.open_on(root, Files(), capacity=capacity_bytes)

    def open_tier_with_faults(self, root, faults):
        return self.open_on(root, SuiteFiles(faults))

    def open_on(self, root, files, capacity=2 << 20):
        return DiskTier(self.context(), DiskConfig(path=root / "disk", capacity=capacity), files)
