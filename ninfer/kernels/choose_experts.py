"""Chooses experts for every row. Knows nothing about models."""

import torch
from torch import Tensor


def choose_experts(scores: Tensor, num_chosen: int, *, normalises: bool) -> tuple[Tensor, Tensor]:
    """Pick the experts with the highest scores.

    Args:
        scores: `[num_rows, num_experts]`, any float dtype.
        num_chosen: per row.
        normalises: scale the weights of a row so that they add up to 1.

    Returns:
        Weights in the dtype of `scores`, and expert numbers, int64; both `[num_rows, num_chosen]`, best first.
        Probabilities are computed in float32 at least.
    """
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights, experts = torch.topk(scores.softmax(-1, dtype=precise), num_chosen, dim=-1)
    if normalises:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights.to(scores.dtype), experts
