"""Rotary position embedding. Knows nothing about models beyond their rotary frequencies.

Heads are *interleaved*: elements 2i and 2i + 1 form the pair that checkpoints keep at i and i + head_dim / 2. Scores do
not depend on the order of elements in a head, and an interleaved head is a row of complex numbers that one
multiplication rotates in place.
"""

import torch
from torch import Tensor


def interleave_heads(weight: Tensor, head_dim: int, *, rotated_dim: int | None = None) -> Tensor:
    """Reorder the rows of a query or key projection (or bias, or head norm) from halves to pairs.

    Args:
        weight: `[num_heads * head_dim, ...]`, the rotated part of each head as two halves.
        head_dim: elements per head.
        rotated_dim: leading elements of a head that are rotated, even; None for all.

    Returns:
        Same shape, a copy.
    """
    width = head_dim if rotated_dim is None else rotated_dim
    heads = weight.reshape(-1, head_dim, *weight.shape[1:])
    halves = heads[:, :width].reshape(-1, 2, width // 2, *weight.shape[1:])
    pairs = halves.transpose(1, 2).reshape(heads[:, :width].shape)
    return torch.cat((pairs, heads[:, width:]), dim=1).reshape(weight.shape)


def rotations(positions: Tensor, inverse_frequencies: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute the rotations of a step, once for all layers.

    Angles are computed in float32 whatever the dtype, as checkpoints were trained with.

    Args:
        positions: int64 `[num_rows]`.
        inverse_frequencies: float32 `[rotated_dim / 2]`, radians per token.
        dtype: dtype of the activations that will be rotated.

    Returns:
        complex64 (complex128 for float64) `[num_rows, 1, rotated_dim / 2]`.
    """
    angles = positions.to(torch.float32).unsqueeze(1) * inverse_frequencies
    real, imaginary = angles.cos(), angles.sin()
    if dtype == torch.float64:
        real, imaginary = real.double(), imaginary.double()
    return torch.complex(real, imaginary).unsqueeze(1)


def rotate_(heads: Tensor, rotation: Tensor) -> None:
    """Rotate interleaved heads in place.

    Args:
        heads: `[num_rows, num_heads, rotated_dim]`, last axis contiguous, any dtype.
        rotation: from `rotations`.
    """
    shape = (*heads.shape[:-1], heads.shape[-1] // 2, 2)
    if heads.dtype in {torch.float32, torch.float64}:
        torch.view_as_complex(heads.view(shape)).mul_(rotation)
        return
    rotated = torch.view_as_complex(heads.to(torch.float32).view(shape)) * rotation
    heads.copy_(torch.view_as_real(rotated).flatten(-2))
