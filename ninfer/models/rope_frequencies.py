"""Rotary frequencies of a model. Knows nothing about how they are applied."""

import math

import torch
from torch import Tensor

from ninfer.models.config import ModelConfig, RopeScaling


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """Compute radians per token of every pair of head elements.

    Source: transformers `modeling_rope_utils`, whose float32 arithmetic is repeated step by step, because a
    checkpoint's angles are those it was trained with.

    Returns:
        float32 `[rotated_dim / 2]`.
    """
    width = config.rotated_dim
    exponents = torch.arange(0, width, 2, dtype=torch.int64).float() / width
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    return _llama3(frequencies, scaling)


def _llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Divide long wavelengths by the factor, keep short ones, blend in between."""
    low_wavelength = scaling.original_max_tokens / scaling.low_freq_factor
    high_wavelength = scaling.original_max_tokens / scaling.high_freq_factor
    wavelength = 2 * math.pi / frequencies
    scaled = torch.where(wavelength > low_wavelength, frequencies / scaling.factor, frequencies)
    smooth = (scaling.original_max_tokens / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * scaled / scaling.factor + smooth * scaled
    is_between = ~(wavelength < high_wavelength) & ~(wavelength > low_wavelength)
    return torch.where(is_between, blended, scaled)
