"""How the next token is chosen, as data. Knows nothing about tensors or HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling settings of one request. The defaults sample greedily.

    Attributes:
        temperature: 0.0 is greedy, otherwise logits are divided by it.
        top_p: keep the smallest set of tokens whose probabilities sum to at least this, in (0, 1].
        top_k: keep the k most likely tokens, 0 for all.
        min_p: drop tokens less likely than this share of the most likely one, in [0, 1].
        presence_penalty: subtracted once from logits of tokens already generated.
        frequency_penalty: subtracted once per earlier generation of the token.
        repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or answer.
        seed: makes the request's choices reproducible; None draws one.
        logit_bias: added to logits by token id.
        num_logprobs: how many alternatives to report per token; None reports nothing, 0 the chosen one only.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    num_logprobs: int | None = None

    @property
    def is_greedy(self) -> bool:
        """True if the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """True if earlier tokens change the logits."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )
