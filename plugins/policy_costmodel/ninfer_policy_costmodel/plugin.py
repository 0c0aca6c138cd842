"""Entry point of the plugin. Registers one provider; knows nothing about costs."""

from ninfer.api import PolicyProvider, hookimpl
from ninfer_policy_costmodel.config import CostModelConfig
from ninfer_policy_costmodel.policy import CostModelPolicy

NINFER_API = (1, 0)


@hookimpl
def ninfer_placement_policies() -> list[PolicyProvider[CostModelConfig]]:
    """Offer the kind `costmodel`."""
    return [
        PolicyProvider(
            kind="costmodel",
            summary="Keeps what saves most prefill seconds per byte, decayed by idle time; prices plans in seconds.",
            config=CostModelConfig,
            open=CostModelPolicy.open,
            sample_config=CostModelConfig.sample,
        )
    ]
