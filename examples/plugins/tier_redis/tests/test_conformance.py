"""The conformance suite of storage tiers, on a real server."""

from pathlib import Path

import pytest

from ninfer.api import ImageKey, StorageTier
from ninfer.testing import StorageTierSuite
from ninfer_tier_redis.config import RedisConfig
from ninfer_tier_redis.tier import RedisTier


class TestRedisTier(StorageTierSuite):
    @pytest.fixture(autouse=True)
    def _on(self, server):
        self.server = server

    def open_tier(self, root: Path) -> StorageTier:
        return self.open_tier_of(root, 4 << 20)

    def open_tier_of(self, root: Path, capacity_bytes: int) -> StorageTier:
        config = RedisConfig(url=self.server.url, prefix=root.name, capacity=capacity_bytes)
        return RedisTier.open(self.context(), config)

    def damage(self, root: Path, key: ImageKey, payload: bytes) -> bool:
        client = self.server.client()
        (name,) = client.scan_iter(f"{root.name}:*:image:{key.text}")
        position = client.get(name).index(payload)
        client.setrange(name, position, bytes([payload[0] ^ 1]))
        return True
