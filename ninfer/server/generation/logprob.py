"""Log-probabilities that JSON can express. Knows nothing about response formats."""

import math
from typing import Final

LOWEST_LOGPROB: Final = -9999.0
"""What OpenAI sends for a probability of zero: JSON has no infinity."""


def finite_logprob(logprob: float) -> float:
    """Return a log-probability that JSON can express."""
    return max(logprob, LOWEST_LOGPROB) if math.isfinite(logprob) else LOWEST_LOGPROB
