"""Small random models for tests of everything above the model. Knows nothing about files."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from ninfer.kernels.linear import LinearPolicy
from ninfer.kernels.weight import Weight
from ninfer.models.assembly import assemble
from ninfer.models.build_options import BuildOptions
from ninfer.models.config import HYBRID_FAMILIES, Family, ModelConfig
from ninfer.models.hybrid_config import DeltaNetConfig, ExpertsConfig
from ninfer.models.mtp_head import MtpHead, build_mtp_head
from ninfer.models.tensor_shapes import EMBEDDING, draft_head_shapes, expected_shapes
from ninfer.models.transformer import Transformer

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler


def tiny_config(family: Family = "llama", *, vocab_size: int = 256) -> ModelConfig:
    """Return a configuration that runs in a millisecond.

    2 layers, 4 query heads, 2 KV heads; a hybrid family has 4 layers, of which the last has full attention.
    """
    is_hybrid = family in HYBRID_FAMILIES
    return ModelConfig(
        family=family,
        num_layers=4 if is_hybrid else 2,
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
        qk_norm=family != "llama",
        rotary_dim=4 if is_hybrid else None,
        attention_gate=is_hybrid,
        centred_norms=is_hybrid,
        layer_kinds=(*("linear_attention",) * 3, "full_attention") if is_hybrid else (),
        delta_net=_TINY_DELTA_NET if is_hybrid else None,
        experts=_TINY_EXPERTS if family in {"qwen3_5_moe", "qwen3_next"} else None,
        bos_token_ids=(1,),
        eos_token_ids=(2,),
    )


_TINY_DELTA_NET: Final = DeltaNetConfig(
    num_key_heads=2, num_value_heads=4, key_dim=8, value_dim=12, window=4
)
_TINY_EXPERTS: Final = ExpertsConfig(
    layers=frozenset({0, 2, 3}),
    num_experts=5,
    num_chosen=2,
    intermediate_size=24,
    shared_intermediate_size=32,
    normalises=True,
)


def random_model(
    config: ModelConfig,
    seed: int,
    *,
    dtype: torch.dtype = torch.float32,
    policy: LinearPolicy | None = None,
    has_mtp_head: bool = False,
    compiler: "Compiler | None" = None,
) -> Transformer:
    """Build a model with random weights, equal for equal arguments.

    Weights are large enough that greedy choices are clear and depend on the whole context.

    Args:
        config: shape and constants.
        seed: of the weights.
        dtype: bfloat16, float32 or float64.
        policy: kernels of the linear layers; None for plain ones.
        has_mtp_head: of a hybrid family; the other weights are the same without. See `random_mtp_head`.
        compiler: for policies with a compiled form.
    """
    options = BuildOptions(dtype, policy or LinearPolicy(), torch.device("cpu"), compiler)
    return assemble(config, RandomWeights(config, seed, has_mtp_head=has_mtp_head), options)


def random_mtp_head(model: Transformer, seed: int) -> MtpHead:
    """Build the head of a `random_model` of the same seed with one."""
    file = RandomWeights(model.config, seed, has_mtp_head=True)
    return build_mtp_head(model, file, model.options)


class RandomWeights:
    """A `WeightFile` of random tensors; the same whatever the order of reading."""

    def __init__(self, config: ModelConfig, seed: int, *, has_mtp_head: bool = False) -> None:
        """Draw the tensors, in float64."""
        generator = torch.Generator().manual_seed(seed)
        self._tensors: dict[str, Tensor] = {}
        shapes = expected_shapes(config)
        if has_mtp_head:
            shapes |= draft_head_shapes(config)
        for name, shape in shapes.items():
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            is_centred = config.centred_norms and not name.endswith("linear_attn.norm.weight")
            if name.endswith("norm.weight") or ".pre_fc_norm_" in name:
                values = 0.1 * values if is_centred else 1.0 + 0.1 * values
            elif name != EMBEDDING and len(shape) > 1:
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
