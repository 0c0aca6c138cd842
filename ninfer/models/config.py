"""What a model's forward pass needs to know, from a Hugging Face config.json or GGUF metadata.

Knows nothing about weights or files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ninfer.api.errors import ModelError
from ninfer.models.fields import Fields
from ninfer.models.hybrid_config import (
    DeltaNetConfig,
    ExpertsConfig,
    LayerKind,
    read_delta_net,
    read_experts,
    read_layer_kinds,
)

Family = Literal["llama", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_next"]

FAMILIES: Final[tuple[Family, ...]] = ("llama", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_next")
GGUF_FAMILIES: Final[tuple[Family, ...]] = ("llama", "qwen3")
HYBRID_FAMILIES: Final[tuple[Family, ...]] = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
"""Families with gated delta layers."""

_TEXT_SUFFIX: Final = "_text"
"""Ends the `model_type` of a language model that was taken out of, or lies within, a multimodal one."""
_HYBRID_ROTARY_FACTOR: Final = 0.25
"""Rotated part of a head where a hybrid model's file does not say."""


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained context.

    Attributes:
        kind: "linear" divides all frequencies by `factor`; "llama3" only the low ones, with a smooth transition.
        factor: the divisor, >= 1.
        low_freq_factor: llama3: wavelengths above original / low are divided in full.
        high_freq_factor: llama3: wavelengths below original / high are left alone.
        original_max_tokens: llama3: trained context.
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_tokens: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape and constants of a decoder.

    Attributes:
        family: which code runs it.
        num_layers: decoder layers.
        hidden_size: width of the residual stream.
        num_heads: query heads.
        num_kv_heads: key/value heads; divides `num_heads`.
        head_dim: elements per head, even; need not be hidden_size / num_heads.
        intermediate_size: width of the plain feed-forward block.
        vocab_size: rows of the embedding.
        rms_norm_eps: added to the mean square.
        rope_theta: base of the rotary frequencies.
        rope_scaling: None for unscaled frequencies.
        tie_embeddings: the output projection is the embedding.
        max_context_tokens: longest context the model was made for.
        attention_bias: q, k, v and output projections have a bias.
        qk_norm: query and key heads are normalised before the rotation.
        rotary_dim: leading elements of a head that are rotated, even; None for all.
        attention_gate: attention's output is multiplied by a sigmoid gate of its input.
        centred_norms: weights of norms are stored as their distance from 1.
        layer_kinds: one per layer; empty if all have full attention.
        delta_net: shape of the gated delta layers; None for models without.
        experts: shape of feed-forward blocks that choose among experts; None for models without.
        bos_token_ids: tokens that begin a text; may be empty.
        eos_token_ids: tokens that end a text; may be empty.
    """

    family: Family
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tie_embeddings: bool
    max_context_tokens: int
    attention_bias: bool = False
    qk_norm: bool = False
    rotary_dim: int | None = None
    attention_gate: bool = False
    centred_norms: bool = False
    layer_kinds: tuple[LayerKind, ...] = ()
    delta_net: DeltaNetConfig | None = None
    experts: ExpertsConfig | None = None
    bos_token_ids: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check what the forward pass relies on.

        Raises:
            ModelError: a shape is impossible.
        """
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"{self.num_heads} attention heads are not a multiple of {self.num_kv_heads} KV heads"
            )
        if self.head_dim % 2:
            raise ModelError(f"head_dim must be even for rotary embedding, got {self.head_dim}")
        if self.rotated_dim % 2 or not 2 <= self.rotated_dim <= self.head_dim:
            raise ModelError(
                f"partial_rotary_factor rotates {self.rotated_dim} of {self.head_dim} head elements; "
                "it must be an even number, 2 or more"
            )

    @property
    def is_plain(self) -> bool:
        """Whether all layers are attention without a gate and plain feed-forward blocks."""
        return not (self.delta_layers or self.attention_gate or self.experts)

    @property
    def rotated_dim(self) -> int:
        """Elements of a head that are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def delta_layers(self) -> tuple[int, ...]:
        """Layers that keep a recurrent state."""
        return tuple(i for i, kind in enumerate(self.layer_kinds) if kind == "linear_attention")

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Layers that keep KV."""
        if not self.layer_kinds:
            return tuple(range(self.num_layers))
        return tuple(i for i, kind in enumerate(self.layer_kinds) if kind == "full_attention")

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's feed-forward block chooses among experts."""
        return self.experts is not None and layer in self.experts.layers


def config_from_hf(raw: Mapping[str, object]) -> ModelConfig:
    """Read a Hugging Face config.json.

    Args:
        raw: the parsed file. Of a multimodal model the `text_config` in it counts.

    Raises:
        ModelError: the architecture or one of its options is not supported, or a field is missing.
    """
    whole = Fields(raw, source="config.json")
    family = _family(
        whole.text("model_type", default="").removesuffix(_TEXT_SUFFIX), supported=FAMILIES
    )
    is_hybrid = family in HYBRID_FAMILIES
    fields = (whole.table("text_config") if is_hybrid else None) or whole
    _refuse_options(fields)
    num_layers = fields.integer("num_hidden_layers")
    num_heads = fields.integer("num_attention_heads")
    hidden_size = fields.integer("hidden_size")
    head_dim = fields.integer("head_dim", default=_default_head_dim(family, hidden_size, num_heads))
    theta, scaling = _hf_rope(fields)
    experts = None
    if family in {"qwen3_5_moe", "qwen3_next"}:
        experts = read_experts(fields, num_layers, always_normalises=family == "qwen3_5_moe")
    return ModelConfig(
        family=family,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", default=num_heads),
        head_dim=head_dim,
        intermediate_size=fields.integer(
            "intermediate_size", default=experts.intermediate_size if experts else None
        ),
        vocab_size=fields.integer("vocab_size"),
        rms_norm_eps=fields.number("rms_norm_eps", default=1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_embeddings=whole.flag(
            "tie_word_embeddings", default=fields.flag("tie_word_embeddings", default=False)
        ),
        max_context_tokens=fields.integer("max_position_embeddings", default=2048),
        attention_bias=fields.flag("attention_bias", default=False),
        qk_norm=family != "llama",
        rotary_dim=_rotary_dim(fields, head_dim, is_hybrid=is_hybrid),
        attention_gate=is_hybrid,
        centred_norms=is_hybrid,
        layer_kinds=read_layer_kinds(fields, num_layers) if is_hybrid else (),
        delta_net=read_delta_net(fields) if is_hybrid else None,
        experts=experts,
        bos_token_ids=fields.token_ids("bos_token_id"),
        eos_token_ids=fields.token_ids("eos_token_id"),
    )


def config_from_gguf(
    metadata: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]
) -> ModelConfig:
    """Read GGUF metadata.

    Args:
        metadata: key-value pairs of the file; long arrays may be left out.
        shapes: tensor name -> shape, outputs first. They tell what metadata does not: tied embeddings, biases.

    Raises:
        ModelError: the architecture or its rope scaling is not supported, or a field is missing.
    """
    fields = Fields(metadata, source="GGUF metadata")
    family = _family(fields.text("general.architecture", default=""), supported=GGUF_FAMILIES)
    keys = Fields(metadata, source="GGUF metadata", prefix=f"{family}.")
    num_heads = keys.integer("attention.head_count")
    hidden_size = keys.integer("embedding_length")
    head_dim = keys.integer("attention.key_length", default=hidden_size // num_heads)
    if keys.integer("rope.dimension_count", default=head_dim) != head_dim:
        raise ModelError(f"partial rotary embedding of {family} GGUF files is not supported")
    if keys.integer("expert_count", default=0):
        raise ModelError(f"mixture-of-experts {family} GGUF files are not supported")
    scaling = keys.text("rope.scaling.type", default="none")
    if scaling not in {"none", "linear"}:
        raise ModelError(f"rope scaling {scaling!r} is not supported; supported: none, linear")
    return ModelConfig(
        family=family,
        num_layers=keys.integer("block_count"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=keys.integer("attention.head_count_kv", default=num_heads),
        head_dim=head_dim,
        intermediate_size=keys.integer("feed_forward_length"),
        vocab_size=shapes.get("token_embd.weight", (0,))[0],
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon", default=1e-6),
        rope_theta=keys.number("rope.freq_base", default=10000.0),
        rope_scaling=RopeScaling("linear", keys.number("rope.scaling.factor"))
        if scaling == "linear"
        else None,
        tie_embeddings="output.weight" not in shapes,
        max_context_tokens=keys.integer("context_length"),
        attention_bias="blk.0.attn_q.bias" in shapes,
        qk_norm=family == "qwen3",
        bos_token_ids=fields.token_ids("tokenizer.ggml.bos_token_id"),
        eos_token_ids=fields.token_ids("tokenizer.ggml.eos_token_id"),
    )


def _family(name: str, *, supported: tuple[Family, ...]) -> Family:
    for family in supported:
        if name == family:
            return family
    raise ModelError(
        f"model architecture {name!r} is not supported; supported: {', '.join(supported)}"
    )


def _default_head_dim(family: Family, hidden_size: int, num_heads: int) -> int:
    if family == "llama":
        return hidden_size // num_heads
    return 128 if family == "qwen3" else 256


def _rotary_dim(fields: Fields, head_dim: int, *, is_hybrid: bool) -> int | None:
    """Read how many elements of a head are rotated; None for all."""
    rope = fields.table("rope_parameters") or fields.table("rope_scaling")
    default = _HYBRID_ROTARY_FACTOR if is_hybrid else 1.0
    factor = fields.number("partial_rotary_factor", default=default)
    if rope is not None:
        factor = rope.number("partial_rotary_factor", default=factor)
    if not is_hybrid and factor != 1.0:
        raise ModelError("partial rotary embedding is not supported by this architecture")
    return None if factor == 1.0 else int(head_dim * factor)


def _refuse_options(fields: Fields) -> None:
    """Refuse options of a supported architecture that would change its result unnoticed."""
    if fields.flag("mlp_bias", default=False):
        raise ModelError("mlp_bias is not supported")
    if not fields.flag("attn_output_gate", default=True):
        raise ModelError(
            "attention without an output gate (attn_output_gate false) is not supported"
        )
    if fields.flag("use_sliding_window", default=False):
        raise ModelError("sliding-window attention is not supported")
    activation = fields.text("hidden_act", default="silu")
    if activation != "silu":
        raise ModelError(f"activation {activation!r} is not supported; supported: silu")


def _hf_rope(fields: Fields) -> tuple[float, RopeScaling | None]:
    """Read rotary constants as old (`rope_theta`, `rope_scaling`) or new (`rope_parameters`) files write them."""
    rope = fields.table("rope_parameters") or fields.table("rope_scaling")
    theta = fields.number("rope_theta", default=10000.0)
    if rope is None:
        return theta, None
    theta = rope.number("rope_theta", default=theta)
    kind = rope.text("rope_type", default=rope.text("type", default="default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling("linear", rope.number("factor"))
    if kind == "llama3":
        return theta, RopeScaling(
            "llama3",
            rope.number("factor"),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_max_tokens=rope.integer(
                "original_max_position_embeddings",
                default=fields.integer("original_max_position_embeddings", default=8192),
            ),
        )
    raise ModelError(f"rope scaling {kind!r} is not supported; supported: default, linear, llama3")
