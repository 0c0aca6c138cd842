"""The policy `costmodel` passes the suite of policies."""

from ninfer_policy_costmodel.config import CostModelConfig
from ninfer_policy_costmodel.policy import CostModelPolicy
from typing_extensions import override

from ninfer.api import PlacementPolicy, PolicyContext
from ninfer.testing import PlacementPolicySuite


class TestCostModel(PlacementPolicySuite):
    @override
    def open_policy(self, context: PolicyContext) -> PlacementPolicy:
        return CostModelPolicy.open(context, CostModelConfig())
