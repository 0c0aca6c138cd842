"""Samples as tensors. Knows nothing about where samples come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from torch import Tensor

from tools.tiny_hybrid.attention import Span
from tools.tiny_hybrid.delta_rule import CHUNK_TOKENS
from tools.tiny_hybrid.sample import Sample
from tools.tiny_hybrid.shape import CONTEXT_TOKENS, Shape


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of tokens, padded at the end.

    Attributes:
        token_ids: [batch, num_tokens].
        is_answer: like token_ids, which tokens are learned.
        span: positions, and how much each key counts.
    """

    token_ids: Tensor
    is_answer: Tensor
    span: Span

    @property
    def num_tokens(self) -> int:
        """Tokens with padding: what is computed."""
        return self.token_ids.numel()

    def targets(self, ahead: int) -> tuple[Tensor, Tensor]:
        """Find what is predicted `ahead` tokens later.

        Returns:
            Flat indices into [batch * num_tokens] of positions that predict a learned token, and those tokens.
        """
        later = torch.zeros_like(self.is_answer)
        later[:, :-ahead] = self.is_answer[:, ahead:]
        index = later.flatten().nonzero()[:, 0]
        return index, self.token_ids.flatten()[index + ahead]


@dataclass(frozen=True, slots=True)
class Stretch:
    """How a short haystack is made to look long to attention.

    Attributes:
        spread: chance that a row's positions jump inside filler, so that distances up to the whole context are seen.
        dilute: chance that a row's filler counts as often as a longer haystack's would.
    """

    spread: float = 0.0
    dilute: float = 0.0


def build_batch(
    samples: Sequence[Sample],
    shape: Shape,
    *,
    rng: Random | None = None,
    stretch: Stretch | None = None,
) -> Batch:
    """Pad samples and compute what attention needs.

    Args:
        samples: the rows.
        shape: sizes of the model.
        rng: needed with stretch.
        stretch: None for plain positions.
    """
    longest = max(len(sample.token_ids) for sample in samples)
    width = -(-longest // CHUNK_TOKENS) * CHUNK_TOKENS
    token_ids = np.zeros((len(samples), width), dtype=np.int64)
    is_answer = np.zeros((len(samples), width), dtype=bool)
    positions = np.tile(np.arange(width, dtype=np.int64), (len(samples), 1))
    log_counts = np.zeros((len(samples), width), dtype=np.float32)
    tail_starts = np.full(len(samples), width)
    for row, sample in enumerate(samples):
        length = len(sample.token_ids)
        token_ids[row, :length] = sample.token_ids
        is_answer[row, :length] = sample.is_answer
        filler = np.flatnonzero(sample.is_filler)
        if rng is None or stretch is None or not filler.size:
            continue
        if rng.random() < stretch.spread:
            positions[row] += _jumps(filler, width, rng)
        if rng.random() < stretch.dilute:
            log_counts[row, filler] = np.log(_far(length, rng) / length)
            tail_starts[row] = filler[-1] + 1
    span_bias = _tail_bias(log_counts, tail_starts) if (tail_starts < width).any() else None
    span = Span.of(torch.from_numpy(positions), shape, tail_bias=span_bias)
    return Batch(torch.from_numpy(token_ids), torch.from_numpy(is_answer), span)


def _far(length: int, rng: Random) -> float:
    """Draw a length between length and the longest, evenly on a logarithmic scale."""
    return float(length * (CONTEXT_TOKENS / length) ** rng.random())


def _jumps(filler: np.ndarray, width: int, rng: Random) -> np.ndarray:
    """Add a few gaps to positions, at filler tokens, so that the text ends at a far position."""
    extra = _far(width, rng) - width
    cuts = sorted(rng.choice(filler) for _ in range(rng.randint(1, 4)))
    shares = np.array([rng.random() + 1e-6 for _ in cuts])
    gaps = np.zeros(width, dtype=np.int64)
    np.add.at(gaps, cuts, (extra * shares / shares.sum()).astype(np.int64))
    return gaps.cumsum()


def _tail_bias(log_counts: np.ndarray, tail_starts: np.ndarray) -> Tensor:
    """Write the scores that are added for queries after the haystack.

    A key that counts n times adds log n to its score: softmax over it equals softmax over n copies.
    """
    batch, width = log_counts.shape
    head = int(tail_starts.min())
    queries = np.arange(head, width)
    bias = np.where(
        queries[None, :, None] >= tail_starts[:, None, None], log_counts[:, None, :], 0.0
    )
    bias = np.where(np.arange(width)[None, None, :] <= queries[None, :, None], bias, -np.inf)
    return torch.from_numpy(bias.astype(np.float32)).reshape(batch, 1, width - head, width)
