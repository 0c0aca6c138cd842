"""What a model's forward pass needs to know, from a Hugging Face config.json or GGUF metadata.

Knows nothing about weights or files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ninfer.api.errors import ModelError
from ninfer.models.fields import Fields

Family = Literal["llama", "qwen3"]

FAMILIES: Final[tuple[Family, ...]] = ("llama", "qwen3")


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
    """Shape and constants of a dense decoder.

    Attributes:
        family: which code runs it.
        num_layers: decoder layers.
        hidden_size: width of the residual stream.
        num_heads: query heads.
        num_kv_heads: key/value heads; divides `num_heads`.
        head_dim: elements per head, even; need not be hidden_size / num_heads.
        intermediate_size: width of the feed-forward block.
        vocab_size: rows of the embedding.
        rms_norm_eps: added to the mean square.
        rope_theta: base of the rotary frequencies.
        rope_scaling: None for unscaled frequencies.
        tie_embeddings: the output projection is the embedding.
        max_context_tokens: longest context the model was made for.
        attention_bias: q, k, v and output projections have a bias.
        qk_norm: query and key heads are normalised before the rotation.
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


def config_from_hf(raw: Mapping[str, object]) -> ModelConfig:
    """Read a Hugging Face config.json.

    Args:
        raw: the parsed file.

    Raises:
        ModelError: the architecture or one of its options is not supported, or a field is missing.
    """
    fields = Fields(raw, source="config.json")
    family = _family(fields.text("model_type", default=""))
    _refuse_options(fields)
    num_heads = fields.integer("num_attention_heads")
    hidden_size = fields.integer("hidden_size")
    theta, scaling = _hf_rope(fields)
    return ModelConfig(
        family=family,
        num_layers=fields.integer("num_hidden_layers"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", default=num_heads),
        head_dim=fields.integer(
            "head_dim", default=128 if family == "qwen3" else hidden_size // num_heads
        ),
        intermediate_size=fields.integer("intermediate_size"),
        vocab_size=fields.integer("vocab_size"),
        rms_norm_eps=fields.number("rms_norm_eps", default=1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_embeddings=fields.flag("tie_word_embeddings", default=False),
        max_context_tokens=fields.integer("max_position_embeddings", default=2048),
        attention_bias=fields.flag("attention_bias", default=False),
        qk_norm=family == "qwen3",
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
    family = _family(fields.text("general.architecture", default=""))
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


def _family(name: str) -> Family:
    for family in FAMILIES:
        if name == family:
            return family
    raise ModelError(
        f"model architecture {name!r} is not supported; supported: {', '.join(FAMILIES)}"
    )


def _refuse_options(fields: Fields) -> None:
    """Refuse options of a supported architecture that would change its result unnoticed."""
    if fields.flag("mlp_bias", default=False):
        raise ModelError("mlp_bias is not supported")
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
    if rope.number("partial_rotary_factor", default=1.0) != 1.0:
        raise ModelError("partial rotary embedding is not supported")
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
