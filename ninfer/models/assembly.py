"""Builds a model from named tensors: fuses, reorders and packs them. Knows nothing about file formats."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from ninfer.kernels.linear import Linear, LinearPolicy
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import interleave_heads
from ninfer.kernels.weight import Weight
from ninfer.models.config import ModelConfig
from ninfer.models.decoder_layer import DecoderLayer, LayerWeights
from ninfer.models.rope_frequencies import inverse_frequencies
from ninfer.models.transformer import Transformer, TransformerWeights
from ninfer.models.weight_file import (
    EMBEDDING,
    FINAL_NORM,
    FREQUENCY_FACTORS,
    OUTPUT,
    WeightFile,
    check_shapes,
)

NUM_THREADS: Final = 2
"""Threads that read and pack weights. More would hold more unpacked layers in memory at once."""

Progress = Callable[[int, int], None]
"""Called with (layers done, layers in all) while a model loads; must return quickly."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How a model is held in memory.

    Attributes:
        dtype: element type of KV and of unpacked weights: bfloat16, float32 or float64.
        policy: kernels of the linear layers.
        device: where tensors go.
    """

    dtype: torch.dtype
    policy: LinearPolicy
    device: torch.device

    @property
    def activation_dtype(self) -> torch.dtype:
        """float32 for bf16 models on a CPU, whose vector units have no bf16 arithmetic; otherwise `dtype`."""
        if self.device.type == "cpu" and self.dtype == torch.bfloat16:
            return torch.float32
        return self.dtype


def assemble(
    config: ModelConfig,
    file: WeightFile,
    options: BuildOptions,
    progress: Progress | None = None,
) -> Transformer:
    """Read all weights and build the model.

    Args:
        config: shape and constants.
        file: named tensors; read once, in order.
        options: element type, kernels, device.
        progress: told about every layer.

    Raises:
        ModelError: a tensor is missing, unknown or misshapen, or cannot be read.
    """
    check_shapes(file.shapes, config)
    builder = _Builder(config, file, options)
    embedding = file.read_weight(EMBEDDING)
    output = embedding if config.tie_embeddings else file.read_weight(OUTPUT)
    layers = []
    # Packing a weight uses one thread and does not hold the interpreter lock.
    with ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="ninfer-load") as pool:
        packed_output = pool.submit(builder.output, output)
        for layer in pool.map(builder.layer, range(config.num_layers)):
            layers.append(layer)
            if progress is not None:
                progress(len(layers), config.num_layers)
    frequencies = inverse_frequencies(config)
    if FREQUENCY_FACTORS in file.shapes:
        frequencies = frequencies / file.read_tensor(FREQUENCY_FACTORS).float()
    weights = TransformerWeights(
        embedding=embedding.dense.to(options.device, options.dtype),
        layers=layers,
        final_norm=builder.norm(file.read_tensor(FINAL_NORM)),
        output=packed_output.result(),
        inverse_frequencies=frequencies.to(options.device),
        policy=options.policy,
    )
    return Transformer(
        config, weights, dtype=options.dtype, activation_dtype=options.activation_dtype
    )


class _Builder:
    """Turns named tensors into operators."""

    def __init__(self, config: ModelConfig, file: WeightFile, options: BuildOptions) -> None:
        self._config = config
        self._file = file
        self._options = options

    def norm(self, weight: Tensor) -> RmsNorm:
        options = self._options
        weight = weight.to(options.device, options.activation_dtype)
        return RmsNorm(weight, self._config.rms_norm_eps)

    def linear(self, weight: Weight, bias: Tensor | None) -> Linear:
        options = self._options
        if options.device.type != "cpu":
            weight = Weight(weight.dense.to(options.device))
        if bias is not None:
            bias = bias.to(options.device, options.activation_dtype)
        return Linear(weight, bias, policy=options.policy, dtype=options.dtype)

    def output(self, weight: Weight) -> Linear:
        """Pack the output projection: with 8 bits where others have 4.

        With 4 bits, SmolLM2 agreed with float32 on 87.5 % of first choices instead of 97.1 %.
        """
        options = self._options
        if options.policy.few != "int4":
            return self.linear(weight, None)
        policy = replace(options.policy, few="int8")
        return Linear(weight, None, policy=policy, dtype=options.dtype)

    def layer(self, index: int) -> DecoderLayer:
        config, file, prefix = self._config, self._file, f"model.layers.{index}."
        attention = prefix + "self_attn."
        gate_up = [file.read_weight(f"{prefix}mlp.{name}_proj.weight") for name in ("gate", "up")]
        weights = LayerWeights(
            input_norm=self.norm(file.read_tensor(prefix + "input_layernorm.weight")),
            qkv=self._qkv(attention),
            qk_norm=self._qk_norm(attention) if config.qk_norm else None,
            attention_output=self.linear(
                file.read_weight(attention + "o_proj.weight"),
                file.read_tensor(attention + "o_proj.bias") if config.attention_bias else None,
            ),
            feed_forward_norm=self.norm(
                file.read_tensor(prefix + "post_attention_layernorm.weight")
            ),
            gate_up=self.linear(Weight.stack(gate_up), None),
            down=self.linear(file.read_weight(prefix + "mlp.down_proj.weight"), None),
        )
        return DecoderLayer(index, config, weights, kv_dtype=self._options.dtype)

    def _qkv(self, attention: str) -> Linear:
        """Fuse the three projections; queries and keys become interleaved heads."""
        config, file = self._config, self._file
        weights = [file.read_weight(f"{attention}{part}_proj.weight") for part in "qkv"]
        order = interleave_heads(
            torch.arange((config.num_heads + config.num_kv_heads) * config.head_dim),
            config.head_dim,
        )
        rest = torch.arange(len(order), len(order) + config.num_kv_heads * config.head_dim)
        order = torch.cat((order, rest))
        bias = None
        if config.attention_bias:
            bias = torch.cat([file.read_tensor(f"{attention}{part}_proj.bias") for part in "qkv"])
            bias = bias[order]
        return self.linear(Weight.stack(weights).select_outputs(order), bias)

    def _qk_norm(self, attention: str) -> RmsNorm:
        """Stack the head norms as `[num_heads + num_kv_heads, head_dim]`, interleaved."""
        config, file = self._config, self._file
        queries = interleave_heads(file.read_tensor(attention + "q_norm.weight"), config.head_dim)
        keys = interleave_heads(file.read_tensor(attention + "k_norm.weight"), config.head_dim)
        return self.norm(
            torch.cat((
                queries.expand(config.num_heads, -1),
                keys.expand(config.num_kv_heads, -1),
            ))
        )
