"""One entry of the ordered list of cache tiers. Knows nothing about what a kind means."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

DEVICE_TIER_NAME: Final = "device"
"""Name of the tier that is always there and never configured."""


class TierEntry(BaseModel):
    """One `[[cache.tiers]]` table: which kind, under which name, with which options of that kind."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Name of the instance in logs, metrics and responses; unique. Required."""
    kind: str = Field(min_length=1)
    """Kind of tier, as `ninfer plugins` lists them. Required."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """All other keys of the table; the plugin that offers the kind reads them."""

    @model_validator(mode="before")
    @classmethod
    def _gather_options(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        options = value.get("options")
        rest = {key: item for key, item in value.items() if key not in {"name", "kind", "options"}}
        own = {key: value[key] for key in ("name", "kind") if key in value}
        nested = dict(options) if isinstance(options, Mapping) else {}
        return {**own, "options": {**nested, **rest}}

    @model_serializer(mode="plain")
    def _flatten(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, **self.options}


def default_tiers() -> tuple[TierEntry, ...]:
    """Return the tiers below the device that are used when none are configured, fastest first."""
    return (
        TierEntry(name="host", kind="host", options={"capacity": "auto"}),
        TierEntry(name="disk", kind="disk", options={"capacity": "8GiB"}),
    )
