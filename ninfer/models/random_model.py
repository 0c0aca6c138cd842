"""Small random models for tests of everything above the model. Knows nothing about files."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ninfer.kernels.linear import LinearPolicy
from ninfer.kernels.weight import Weight
from ninfer.models.assembly import BuildOptions, assemble
from ninfer.models.config import Family, ModelConfig
from ninfer.models.transformer import Transformer
from ninfer.models.weight_file import EMBEDDING, expected_shapes


def tiny_config(family: Family = "llama", *, vocab_size: int = 256) -> ModelConfig:
    """Return a configuration that runs in a millisecond: 2 layers, 4 query heads, 2 KV heads."""
    return ModelConfig(
        family=family,
        num_layers=2,
        hidden_size=48,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        intermediate_size=96,
        vocab_size=vocab_size,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        tie_embeddings=family == "llama",
        max_context_tokens=8192,
        qk_norm=family == "qwen3",
        bos_token_ids=(1,),
        eos_token_ids=(2,),
    )


def random_model(
    config: ModelConfig,
    seed: int,
    *,
    dtype: torch.dtype = torch.float32,
    policy: LinearPolicy | None = None,
) -> Transformer:
    """Build a model with random weights, equal for equal arguments.

    Weights are large enough that greedy choices are clear and depend on the whole context.

    Args:
        config: shape and constants.
        seed: of the weights.
        dtype: bfloat16, float32 or float64.
        policy: kernels of the linear layers; None for plain ones.
    """
    options = BuildOptions(dtype, policy or LinearPolicy(), torch.device("cpu"))
    return assemble(config, RandomWeights(config, seed), options)


class RandomWeights:
    """A `WeightFile` of random tensors; the same whatever the order of reading."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        """Draw the tensors, in float64."""
        generator = torch.Generator().manual_seed(seed)
        self._tensors: dict[str, Tensor] = {}
        for name, shape in expected_shapes(config).items():
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            if name.endswith("norm.weight"):
                values = 1.0 + 0.1 * values
            elif name != EMBEDDING:
                values *= 1.5 / math.sqrt(shape[-1])
            self._tensors[name] = values

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `WeightFile`."""
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def read_weight(self, name: str) -> Weight:
        """See `WeightFile`."""
        return Weight(self._tensors[name])

    def read_tensor(self, name: str) -> Tensor:
        """See `WeightFile`."""
        return self._tensors[name]
