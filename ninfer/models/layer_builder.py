"""Builds decoder layers from named tensors: fuses and reorders them. Knows nothing about file formats."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ninfer.kernels.causal_conv import CausalConv
from ninfer.kernels.gated_norm import GatedNorm
from ninfer.kernels.linear import Linear
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import interleave_heads
from ninfer.kernels.weight import Weight
from ninfer.models.attention import Attention, AttentionWeights
from ninfer.models.build_options import BuildOptions
from ninfer.models.config import ModelConfig
from ninfer.models.decoder_layer import DecoderLayer
from ninfer.models.delta_net import DeltaNet, DeltaNetWeights
from ninfer.models.experts import Experts
from ninfer.models.feed_forward import FeedForward
from ninfer.models.hybrid_config import DeltaNetConfig, ExpertsConfig
from ninfer.models.operator_builder import OperatorBuilder
from ninfer.models.step import Mixer
from ninfer.models.tensor_shapes import FUSED_DOWN, FUSED_GATE_UP
from ninfer.models.weight_file import WeightFile, has_fused_experts

if TYPE_CHECKING:
    from ninfer.kernels.compiled.row_kernels import RowKernels


class LayerBuilder:
    """Reads a layer's tensors and makes its operators. Thread-safe: keeps nothing between calls."""

    def __init__(
        self,
        config: ModelConfig,
        file: WeightFile,
        options: BuildOptions,
        *,
        kv_dtype: torch.dtype | None = None,
        rows: "RowKernels | None" = None,
    ) -> None:
        """Remember where tensors come from.

        Args:
            config: the model.
            file: has its tensors.
            options: how they are held.
            kv_dtype: element type of the KV pool; None for that of the weights.
            rows: see `OperatorBuilder`.
        """
        self._kv_dtype = kv_dtype or options.dtype
        self._config = config
        self._file = file
        self._options = options
        self._operators = OperatorBuilder(config, options, rows)
        self._rows = rows
        self._has_fused_experts = has_fused_experts(file.shapes)
        self._attention_index = {layer: i for i, layer in enumerate(config.attention_layers)}
        self._delta_index = {layer: i for i, layer in enumerate(config.delta_layers)}

    def layer(self, index: int) -> DecoderLayer:
        """Build a layer.

        Raises:
            ModelError: a tensor cannot be read.
        """
        prefix = f"model.layers.{index}."
        return self._decoder_layer(
            prefix, self._mixer(index, prefix), self._block(index, prefix + "mlp.")
        )

    def draft_layer(self, prefix: str) -> DecoderLayer:
        """Build the layer of a head that predicts several tokens: full attention, experts if the model has any.

        It is the only layer of its KV pool.

        Raises:
            ModelError: a tensor cannot be read.
        """
        experts, mlp = self._config.experts, prefix + "mlp."
        block = self._experts(mlp, experts) if experts else self._feed_forward(mlp)
        return self._decoder_layer(prefix, self.attention(0, prefix + "self_attn."), block)

    def _decoder_layer(
        self, prefix: str, mixer: Mixer, block: Callable[[Tensor], Tensor]
    ) -> DecoderLayer:
        file, operators = self._file, self._operators
        # A router decides, so it sees what the norm computed and not what products of many rows would make of it.
        norm = operators.norm if isinstance(block, Experts) else operators.input_norm
        return DecoderLayer(
            input_norm=operators.input_norm(file.read_tensor(prefix + "input_layernorm.weight")),
            mixer=mixer,
            feed_forward_norm=norm(file.read_tensor(prefix + "post_attention_layernorm.weight")),
            feed_forward=block,
        )

    def _mixer(self, index: int, prefix: str) -> Mixer:
        config = self._config
        if config.delta_net is not None and index in self._delta_index:
            weights = self._delta_net(prefix + "linear_attn.", config.delta_net)
            return DeltaNet(self._delta_index[index], config.delta_net, weights)
        return self.attention(self._attention_index[index], prefix + "self_attn.")

    def attention(self, index: int, prefix: str) -> Attention:
        """Build an attention layer.

        Args:
            index: layer of the KV pool.
            prefix: of its tensors' names.
        """
        config, file = self._config, self._file
        weights = AttentionWeights(
            input=self._attention_input(prefix),
            qk_norm=self._qk_norm(prefix) if config.qk_norm else None,
            output=self._operators.linear(
                file.read_weight(prefix + "o_proj.weight"),
                file.read_tensor(prefix + "o_proj.bias") if config.attention_bias else None,
            ),
            rows=self._rows,
        )
        return Attention(index, config, weights, kv_dtype=self._kv_dtype)

    def _attention_input(self, prefix: str) -> Linear:
        """Fuse the projections to queries, keys, values, gates; queries and keys become interleaved heads."""
        config, file = self._config, self._file
        width = config.num_heads * config.head_dim
        queries = torch.arange(width)
        gates = queries[:0]
        if config.attention_gate:
            # The query projection has a query, then a gate, head by head.
            both = torch.arange(2 * width).view(config.num_heads, 2, config.head_dim)
            queries, gates = both[:, 0].flatten(), both[:, 1].flatten()
        keys = torch.arange(config.num_kv_heads * config.head_dim) + len(queries) + len(gates)
        order = torch.cat((
            interleave_heads(
                torch.cat((queries, keys)), config.head_dim, rotated_dim=config.rotated_dim
            ),
            keys + len(keys),
            gates,
        ))
        weights = [file.read_weight(f"{prefix}{part}_proj.weight") for part in "qkv"]
        bias = None
        if config.attention_bias:
            bias = torch.cat([file.read_tensor(f"{prefix}{part}_proj.bias") for part in "qkv"])
            bias = bias[order]
        return self._operators.linear(Weight.stack(weights).select_outputs(order), bias)

    def _qk_norm(self, prefix: str) -> RmsNorm:
        """Stack the head norms as `[num_heads + num_kv_heads, head_dim]`, interleaved."""
        config = self._config
        queries, keys = (
            interleave_heads(
                self._file.read_tensor(f"{prefix}{part}_norm.weight"),
                config.head_dim,
                rotated_dim=config.rotated_dim,
            )
            for part in "qk"
        )
        return self._operators.norm(
            torch.cat((
                queries.expand(config.num_heads, -1),
                keys.expand(config.num_kv_heads, -1),
            ))
        )

    def _delta_net(self, prefix: str, delta: DeltaNetConfig) -> DeltaNetWeights:
        operators = self._operators

        def state_tensor(name: str, change: Callable[[Tensor], Tensor]) -> Tensor:
            return change(operators.state_tensor(self._file.read_tensor(prefix + name)))

        return DeltaNetWeights(
            input=operators.linear(self._delta_input(prefix, delta)),
            conv=CausalConv(state_tensor("conv1d.weight", lambda w: w[:, 0].t().contiguous())),
            decay_bias=state_tensor("dt_bias", lambda bias: bias),
            decay_rate=state_tensor("A_log", lambda log: -log.exp()),
            norm=GatedNorm(
                state_tensor("norm.weight", lambda weight: weight), self._config.rms_norm_eps
            ),
            output=operators.linear(self._file.read_weight(prefix + "out_proj.weight")),
        )

    def _delta_input(self, prefix: str, delta: DeltaNetConfig) -> Weight:
        """Fuse the projections to queries, keys, values, gates, beta, decay."""
        is_grouped = self._config.family == "qwen3_next"
        names = ("qkvz", "ba") if is_grouped else ("qkv", "z", "b", "a")
        weight = Weight.stack([
            self._file.read_weight(f"{prefix}in_proj_{name}.weight") for name in names
        ])
        return weight.select_outputs(_grouped_order(delta)) if is_grouped else weight

    def _block(self, index: int, prefix: str) -> Callable[[Tensor], Tensor]:
        config = self._config
        if config.experts is not None and config.has_experts(index):
            return self._experts(prefix, config.experts)
        return self._feed_forward(prefix)

    def _experts(self, prefix: str, experts: ExpertsConfig) -> Experts:
        file, operators = self._file, self._operators
        router = [
            file.read_weight(f"{prefix}{name}.weight") for name in ("gate", "shared_expert_gate")
        ]
        if self._has_fused_experts:
            layer = prefix.removesuffix("mlp.")
            gate_up = file.read_tensor(layer + FUSED_GATE_UP)
            down = file.read_tensor(layer + FUSED_DOWN)
            blocks = [
                operators.feed_forward(Weight(first), Weight(second))
                for first, second in zip(gate_up, down, strict=True)
            ]
        else:
            blocks = [
                self._feed_forward(f"{prefix}experts.{i}.") for i in range(experts.num_experts)
            ]
        return Experts(
            router=operators.precise(Weight.stack(router)),
            experts=blocks,
            shared=self._feed_forward(prefix + "shared_expert."),
            num_chosen=experts.num_chosen,
            normalises=experts.normalises,
        )

    def _feed_forward(self, prefix: str) -> FeedForward:
        file = self._file
        gate_up = [file.read_weight(f"{prefix}{name}_proj.weight") for name in ("gate", "up")]
        down = file.read_weight(prefix + "down_proj.weight")
        return self._operators.feed_forward(Weight.stack(gate_up), down)


def _grouped_order(delta: DeltaNetConfig) -> Tensor:
    """Order the outputs of qwen3_next's two projections, which are grouped by key head, by kind."""
    group = delta.num_value_heads // delta.num_key_heads
    widths = [delta.key_dim] * 2 + [group * delta.value_dim] * 2
    groups = torch.arange(delta.num_key_heads * sum(widths)).view(delta.num_key_heads, -1)
    gates = torch.arange(2 * delta.num_value_heads).view(delta.num_key_heads, -1) + groups.numel()
    parts = [*torch.split(groups, widths, dim=1), *torch.split(gates, group, dim=1)]
    return torch.cat([part.flatten() for part in parts])
