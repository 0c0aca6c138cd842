"""What a request asks of the time its context stays reusable. Knows nothing about tiers or HTTP."""

from dataclasses import dataclass
from enum import StrEnum


class RetentionMode(StrEnum):
    """How firm a retention is."""

    SOFT = "soft"
    """The context is moved rather than dropped and outranks others, as far as budgets go."""
    STRICT = "strict"
    """Granted only if a tier has room set aside until the deadline, else not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A wish, made with a request.

    Attributes:
        seconds: counted from the request's end, and again from each later hit; > 0.
        mode: how firm.
    """

    seconds: float
    mode: RetentionMode = RetentionMode.SOFT
