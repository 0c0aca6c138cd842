"""A lower tier as the store sees it, and what may be written to it. Plain data."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class WriteFilter(StrEnum):
    """What an object that nobody came back to may displace on a full tier."""

    ALL = "all"
    """What is worth less, as any other object."""
    IDLE = "idle"
    """What would be worth less if the object had been idle for a while."""
    REUSED = "reused"
    """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRules:
    """What may be written to a tier.

    Attributes:
        max_bytes_per_s: sustained; 0 for no limit.
        max_bytes_per_day: in any 24 hours; 0 for no limit.
        filter: which objects that nobody came back to may displace others.
    """

    max_bytes_per_s: int = 0
    max_bytes_per_day: int = 0
    filter: WriteFilter = WriteFilter.ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpace:
    """A lower tier as the store sees it.

    Attributes:
        name: instance name.
        capacity_bytes: its budget.
        stored_bytes: (header bytes, payload bytes) -> bytes of the budget.
        rules: what may be written.
    """

    name: str
    capacity_bytes: int
    stored_bytes: Callable[[int, int], int]
    rules: WriteRules = WriteRules()
