"""The model that decoders guess for in tests: plain Python, no weights. Knows nothing about decoders."""

import math
from collections.abc import Sequence
from random import Random
from typing import Any, Final, Protocol

from ninfer.api import DraftHead

FAMILY: Final = "conformance-toy"
_LARGEST_LOGIT: Final = 3
_MULTIPLIER: Final = 6_364_136_223_846_793_005
_MASK: Final = (1 << 64) - 1


class TargetModel(Protocol):
    """The model whose answers a decoder must not change.

    Attributes:
        vocab_size: number of token ids.
    """

    @property
    def vocab_size(self) -> int: ...  # noqa: D102

    def logits(self, token_ids: Sequence[int]) -> Sequence[float]:
        """Return the score of each next token, [vocab_size], after at least one token."""
        ...


class ToyModel:
    """Scores that depend on the last two tokens by a hash, so small that ties are common and answers repeat.

    The last id is never likely, as padding ids of real vocabularies are not.

    Args:
        vocab_size: number of token ids.

    Attributes:
        vocab_size: the same.
        bias: added to each score.
        scale: every score is multiplied by it.
    """

    def __init__(self, vocab_size: int = 24) -> None:
        """Start without bias."""
        self.vocab_size = vocab_size
        self.bias = [0.0] * vocab_size
        self.scale = 1.0

    def logits(self, token_ids: Sequence[int]) -> Sequence[float]:
        """Return the score of each next token."""
        last = token_ids[-1]
        before = token_ids[-2] % 4 if len(token_ids) > 1 else 0
        state = (last * 4 + before + 1) * _MULTIPLIER & _MASK
        scores = []
        for bias in self.bias:
            state = (state * _MULTIPLIER + 1_442_695_040_888_963_407) & _MASK
            scores.append(self.scale * ((state >> 60) % (_LARGEST_LOGIT + 1) + bias))
        scores[-1] = -math.inf
        return scores


class ToyAccess:
    """A `ModelAccess` over any target model.

    Args:
        module: the model itself.
        draft_head: its head for several tokens, None for none.
    """

    def __init__(self, module: TargetModel, draft_head: DraftHead | None = None) -> None:
        """Keep the model."""
        self._module = module
        self._draft_head = draft_head

    @property
    def family(self) -> str:
        """Name of the family."""
        return FAMILY

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self._module.vocab_size

    @property
    def has_mtp_head(self) -> bool:
        """True if it has a head for several tokens."""
        return self._draft_head is not None

    @property
    def draft_head(self) -> DraftHead | None:
        """That head."""
        return self._draft_head

    @property
    def module(self) -> Any:  # noqa: ANN401 - as in the contract
        """The model itself."""
        return self._module


def most_likely(logits: Sequence[float]) -> int:
    """Return the token with the highest score, the lowest of equals."""
    return max(range(len(logits)), key=lambda token_id: (logits[token_id], -token_id))


def probabilities(logits: Sequence[float]) -> list[float]:
    """Return the softmax of scores."""
    largest = max(logits)
    weights = [math.exp(score - largest) for score in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def verify_greedy(
    model: TargetModel, token_ids: Sequence[int], guesses: Sequence[int]
) -> list[int]:
    """Return what greedy decoding makes of guesses: those that come out, then one token more.

    Args:
        model: decides.
        token_ids: prompt and accepted tokens.
        guesses: maybe none, which is plain decoding.
    """
    known, accepted = list(token_ids), list[int]()
    for guess in [*guesses, None]:
        chosen = most_likely(model.logits([*known, *accepted]))
        accepted.append(chosen)
        if chosen != guess:
            break
    return accepted


def verify_sampled(
    model: TargetModel, token_ids: Sequence[int], guesses: Sequence[int], random: Random
) -> list[int]:
    """Return what sampling makes of guesses, by rejection: the result is distributed as without them.

    A guess is accepted with its probability; after a rejection the token is drawn from the others.

    Source: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, with certain guesses.

    Args:
        model: decides.
        token_ids: prompt and accepted tokens.
        guesses: maybe none, which is plain sampling.
        random: a generator that no decoder sees.
    """
    known, accepted = list(token_ids), list[int]()
    for guess in [*guesses, None]:
        weights = probabilities(model.logits([*known, *accepted]))
        if guess is not None:
            if random.random() < weights[guess]:
                accepted.append(guess)
                continue
            weights[guess] = 0.0
        accepted.append(random.choices(range(len(weights)), weights)[0])
        break
    return accepted
