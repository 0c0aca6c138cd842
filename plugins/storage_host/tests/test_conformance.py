"""The host tier keeps the contract of storage tiers."""

from ninfer_storage_host.config import HostConfig
from ninfer_storage_host.tier import HostTier

from ninfer.testing import StorageTierSuite


class TestHostTier(StorageTierSuite):
    def open_tier(self, root):
        return HostTier.open(self.context(), HostConfig.sample(root))
