"""The conformance suite of placement policies."""

from ninfer_policy_marconi.config import MarconiConfig
from ninfer_policy_marconi.policy import MarconiPolicy

from ninfer.api import PlacementPolicy, PolicyContext
from ninfer.testing import PlacementPolicySuite


class TestMarconi(PlacementPolicySuite):
    def open_policy(self, context: PolicyContext) -> PlacementPolicy:
        return MarconiPolicy.open(context, MarconiConfig())
