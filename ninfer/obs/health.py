"""How well the engine is, as data. Knows nothing about how that is found out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

HealthStatus = Literal["ok", "degraded", "failed", "draining"]
"""`degraded`: serves, but something is missing, such as a tier. `failed`: serves nothing until it is restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """The state of the engine at one moment.

    Attributes:
        status: the worst thing that is true.
        problems: one sentence each, for people; empty when all is well.
        plugins: of those, the problems of each plugin, by its name.
    """

    status: HealthStatus
    problems: tuple[str, ...] = ()
    plugins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
