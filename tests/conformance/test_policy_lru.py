"""The built-in policy `lru` passes the suite of policies."""

from typing_extensions import override

from ninfer.api import PlacementPolicy, PolicyContext
from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.testing.policy import PlacementPolicySuite


class TestLru(PlacementPolicySuite):
    @override
    def open_policy(self, context: PolicyContext) -> PlacementPolicy:
        return LruPolicy.open(context, LruConfig())
