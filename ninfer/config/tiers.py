"""One entry of the ordered list of cache tiers. Knows nothing about what a kind means."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from ninfer.config.quantities import ByteSize

DEVICE_TIER_NAME: Final = "device"
"""Name of the tier that is always there and never configured."""

_RULE_KEYS: Final = ("max_write_per_s", "max_write_per_day", "admit")
_OWN_KEYS: Final = ("name", "kind", *_RULE_KEYS)


class TierEntry(BaseModel):
    """One `[[cache.tiers]]` table: which kind, under which name, with which options of that kind."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Name of the instance in logs, metrics and responses; unique. Required."""
    kind: str = Field(min_length=1)
    """Kind of tier, as `ninfer plugins` lists them. Required."""
    max_write_per_s: ByteSize = 0
    """Most bytes written to the tier per second, on average over ten. Unit: bytes ("200MiB"); 0 is no limit."""
    max_write_per_day: ByteSize = 0
    """Most bytes written to the tier in any 24 hours. Unit: bytes ("1TiB"); 0 is no limit."""
    admit: Literal["auto", "all", "idle", "reused"] = "auto"
    """What contexts that nobody came back to yet displace when the tier is full: "all" is whatever is worth less, "idle"
    only what was not used for 5 minutes, "reused" nothing. "auto" is idle for tiers that outlive the process and are
    not shared, else all."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """All other keys of the table; the plugin that offers the kind reads them."""

    @model_validator(mode="before")
    @classmethod
    def _gather_options(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        options = value.get("options")
        rest = {key: item for key, item in value.items() if key not in {*_OWN_KEYS, "options"}}
        own = {key: value[key] for key in _OWN_KEYS if key in value}
        nested = dict(options) if isinstance(options, Mapping) else {}
        return {**own, "options": {**nested, **rest}}

    @model_serializer(mode="plain")
    def _flatten(self) -> dict[str, Any]:
        rules: dict[str, Any] = {
            key: getattr(self, key) for key in _RULE_KEYS if key in self.model_fields_set
        }
        return {"name": self.name, "kind": self.kind, **rules, **self.options}


def default_tiers() -> tuple[TierEntry, ...]:
    """Return the tiers below the device that are used when none are configured, fastest first."""
    return (
        TierEntry(name="host", kind="host", options={"capacity": "auto"}),
        TierEntry(name="disk", kind="disk", options={"capacity": "8GiB"}),
    )
