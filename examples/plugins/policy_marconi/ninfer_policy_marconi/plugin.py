"""Entry point of the plugin. Registers one provider; knows nothing about values."""

from ninfer.api import PolicyProvider, hookimpl
from ninfer_policy_marconi.config import MarconiConfig
from ninfer_policy_marconi.policy import MarconiPolicy

NINFER_API = (1, 0)


@hookimpl
def ninfer_placement_policies() -> list[PolicyProvider[MarconiConfig]]:
    """Offer the kind `marconi`."""
    return [
        PolicyProvider(
            kind="marconi",
            summary="Keeps what was used last and what saves most FLOPs per byte (arXiv 2411.19379).",
            config=MarconiConfig,
            open=MarconiPolicy.open,
            sample_config=MarconiConfig.sample,
        )
    ]
