"""The conformance suite of storage tiers, on a real server."""

from pathlib import Path
from unittest.mock import patch

import pytest
import redis
from ninfer_tier_redis import scripts
from ninfer_tier_redis.config import RedisConfig
from ninfer_tier_redis.link import Link
from ninfer_tier_redis.tier import RedisTier

from ninfer.api import ImageKey, StorageTier
from ninfer.testing import StorageTierSuite

READS = {"EXISTS", "GET", "HMGET", "HSCAN", "SCAN", "CONFIG"}


class TestRedisTier(StorageTierSuite):
    @pytest.fixture(autouse=True)
    def _on(self, server):
        self.server = server

    def open_tier(self, root: Path) -> StorageTier:
        return self.open_tier_of(root, 4 << 20)

    def open_tier_of(self, root: Path, capacity_bytes: int) -> StorageTier:
        config = RedisConfig(url=self.server.url, prefix=root.name, capacity=capacity_bytes)
        return RedisTier.open(self.context(), config)

    def open_tier_with_faults(self, root: Path, faults) -> StorageTier:
        class FaultyLink(Link):
            """Sends one command after the other; before a write, the process may die or the server refuse."""

            def send(self, commands):
                replies = []
                for command in commands:
                    is_read = command[0] in READS or command[1] in {scripts.LOOK, scripts.AUDIT}
                    try:
                        if not is_read:
                            faults.change()
                        replies += super().send([command])
                    except OSError as error:
                        replies.append(redis.ResponseError(f"MISCONF {error}"))
                return replies

        with patch("ninfer_tier_redis.tier.Link", FaultyLink):
            tier = self.open_tier(root)
        faults.at_death(tier._store.link.close)
        return tier

    def damage(self, root: Path, key: ImageKey, payload: bytes) -> bool:
        client = self.server.client()
        (name,) = client.scan_iter(f"{root.name}:*:image:{key.text}")
        position = client.get(name).index(payload)
        client.setrange(name, position, bytes([payload[0] ^ 1]))
        return True
