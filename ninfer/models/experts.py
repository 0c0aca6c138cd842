"""A feed-forward block that chooses among experts, beside one that every row uses. Knows nothing about weight files."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.kernels.choose_experts import choose_experts
from ninfer.kernels.linear import Linear
from ninfer.models.feed_forward import FeedForward


@dataclass(frozen=True, slots=True)
class Experts:
    """Maps `[num_rows, hidden_size]` to the same shape, row by row.

    Attributes:
        router: outputs are a score for each expert, then one for the shared expert.
        experts: to choose from.
        shared: used by every row, weighted by a sigmoid of its score.
        num_chosen: experts per row.
        normalises: the weights of a row's experts add up to 1.
    """

    router: Linear
    experts: Sequence[FeedForward]
    shared: FeedForward
    num_chosen: int
    normalises: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Compute what is added to the residual stream, new, in float32 at least."""
        scores = self.router.unconverted(x)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        weights, chosen = choose_experts(
            scores[:, :-1], self.num_chosen, normalises=self.normalises
        )
        output = self.shared(x).to(scores.dtype).mul_(scores[:, -1:].sigmoid())
        # Rows sorted by expert, so that every expert computes all of its rows at once.
        order = chosen.flatten().argsort(stable=True)
        rows = order // self.num_chosen
        weights = weights.flatten()[order].unsqueeze(-1)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        start = 0
        for expert, count in zip(self.experts, counts, strict=True):
            if count:
                mine = rows[start : start + count]
                result = expert(x[mine]).to(scores.dtype).mul_(weights[start : start + count])
                output.index_add_(0, mine, result)
                start += count
        return output
