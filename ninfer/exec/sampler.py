"""Chooses tokens of one lane from logits, on the host. Knows nothing about batches or tensors.

Works on numpy rows: for one vocabulary they are read faster than a tensor library dispatches, and the result depends
on nothing but the row, so that a seed gives the same tokens whatever else runs.
"""

import random
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ninfer.api.errors import NinferError
from ninfer.core.request import TokenLogprob
from ninfer.core.sampling import SamplingParams

Row = NDArray[np.floating]
"""Logits of one position, float32 or float64 `[vocab_size]`."""

_FIRST_TOP: Final = 256
"""Likely tokens looked at first for top-p; multiplied by 8 until they hold enough."""


class SamplingFailed(NinferError):
    """No token can be chosen, because logits are not finite."""

    code = "sampling_failed"


class LaneSampler:
    """Sampling state of one request.

    Order: penalties, bias, temperature, top-k, top-p of what top-k left, min-p relative to the most likely token.
    Each choice takes one number of the lane's random generator, whatever was drafted, so equal seeds give equal
    tokens with and without speculation.

    Attributes:
        params: what was asked for.
        is_plain_greedy: the most likely token of the raw logits is always taken.
    """

    def __init__(
        self, params: SamplingParams, prompt_token_ids: Sequence[int], *, vocab_size: int
    ) -> None:
        """Begin a request.

        Args:
            params: what was asked for. Biased ids outside the vocabulary are ignored.
            prompt_token_ids: count for the repetition penalty.
            vocab_size: length of the rows to come.
        """
        self.params = params
        self.is_plain_greedy = (
            params.is_greedy and not params.has_penalties and not params.logit_bias
        )
        self._random = random.Random(params.seed)  # noqa: S311 - nothing secret depends on it
        self._counts: NDArray[np.float32] | None = None
        self._is_repeated: NDArray[np.bool_] | None = None
        if params.presence_penalty or params.frequency_penalty:
            self._counts = np.zeros(vocab_size, np.float32)
        if params.repetition_penalty != 1.0:
            self._is_repeated = np.zeros(vocab_size, np.bool_)
            prompt = np.asarray(prompt_token_ids, np.int64)
            self._is_repeated[prompt[(prompt >= 0) & (prompt < vocab_size)]] = True
        biases = {t: b for t, b in params.logit_bias.items() if 0 <= t < vocab_size}
        self._bias_ids = np.fromiter(biases.keys(), np.int64, len(biases))
        self._biases = np.fromiter(biases.values(), np.float32, len(biases))

    def choose(self, row: Row) -> int:
        """Choose the next token. Takes one random number unless greedy.

        Args:
            row: raw logits, unchanged.

        Raises:
            SamplingFailed: the largest logit is not a number or infinite.
        """
        scores = row if self.is_plain_greedy else self._adjusted(row)
        best = int(scores.argmax())
        if not np.isfinite(scores[best]):
            raise SamplingFailed(f"logits are not finite (the largest is {scores[best]})")
        if self.params.is_greedy:
            return best
        return self._draw(scores, float(scores[best]))

    def record(self, token_id: int) -> None:
        """Count a token that became part of the answer."""
        if self._counts is not None:
            self._counts[token_id] += 1.0
        if self._is_repeated is not None:
            self._is_repeated[token_id] = True

    def logprob(self, row: Row, token_id: int) -> TokenLogprob:
        """Report the log-probability of a token and of the most likely ones, before any adjustment.

        Args:
            row: raw logits.
            token_id: the chosen token.

        Returns:
            `num_logprobs` alternatives at most, most likely first; equal ones by id.
        """
        row = row.astype(np.float32, copy=False)
        shift = row.max()
        log_sum = shift + np.log(np.exp(row - shift).sum(dtype=np.float64))
        num_top = min(self.params.num_logprobs or 0, len(row))
        top = tuple((int(index), float(row[index] - log_sum)) for index in _largest(row, num_top))
        return TokenLogprob(token_id=token_id, logprob=float(row[token_id] - log_sum), top=top)

    def _adjusted(self, row: Row) -> Row:
        scores = row.copy()
        if self._is_repeated is not None:
            penalty = self.params.repetition_penalty
            values = scores[self._is_repeated]
            scores[self._is_repeated] = np.where(values > 0, values / penalty, values * penalty)
        if self._counts is not None:
            scores -= self.params.frequency_penalty * self._counts
            scores -= self.params.presence_penalty * (self._counts > 0)
        scores[self._bias_ids] += self._biases
        return scores

    def _draw(self, scores: Row, best_score: float) -> int:
        """Draw from the filtered distribution by its inverse, with one random number."""
        params = self.params
        with np.errstate(over="ignore", under="ignore"):
            weights = np.exp((scores - best_score) / params.temperature)
        kept: NDArray[np.int64] | None = None
        if 0 < params.top_k < len(weights):
            kept = _largest(scores, params.top_k)
        if params.top_p < 1.0:
            kept = _top_p(weights, params.top_p, kept)
        candidates = weights if kept is None else weights[kept]
        if params.min_p > 0.0:
            candidates = np.where(candidates >= params.min_p, candidates, 0.0)
        cumulative = candidates.cumsum(dtype=np.float64)
        total = cumulative[-1]
        point = min(self._random.random() * total, np.nextafter(total, 0.0))
        index = int(cumulative.searchsorted(point, side="right"))
        return index if kept is None else int(kept[index])


def _largest(values: Row, count: int) -> NDArray[np.int64]:
    """Return indices of the `count` largest values, largest first, equal ones by index."""
    if count <= 0:
        return np.empty(0, np.int64)
    if count >= len(values):
        return np.argsort(-values, kind="stable")
    smallest = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > smallest)
    ties = np.flatnonzero(values == smallest)[: count - len(above)]
    found = np.concatenate([above[np.argsort(-values[above], kind="stable")], ties])
    return found.astype(np.int64, copy=False)


def _top_p(weights: Row, top_p: float, kept: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return the smallest set of tokens whose share of the weights reaches `top_p`, likeliest first.

    Args:
        weights: unnormalised probabilities.
        top_p: share to reach.
        kept: tokens to choose from, likeliest first; None for all.
    """
    if kept is not None:
        order, total = kept, weights[kept].sum(dtype=np.float64)
    else:
        total = weights.sum(dtype=np.float64)
        count = _FIRST_TOP
        order = _largest(weights, count)
        while len(order) < len(weights) and weights[order].sum(dtype=np.float64) < top_p * total:
            count *= 8
            order = _largest(weights, count)
    cumulative = weights[order].cumsum(dtype=np.float64)
    return order[: int(cumulative.searchsorted(top_p * total, side="left")) + 1]
