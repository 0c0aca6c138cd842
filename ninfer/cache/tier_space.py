"""A lower tier as the store sees it. Plain data."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpace:
    """A lower tier as the store sees it.

    Attributes:
        name: instance name.
        capacity_bytes: its budget.
        stored_bytes: (header bytes, payload bytes) -> bytes of the budget.
    """

    name: str
    capacity_bytes: int
    stored_bytes: Callable[[int, int], int]
