"""Sizes of the model. Knows nothing about weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONTEXT_TOKENS: Final = 262_144
"""Longest position the model is trained to see; see `haystack_batch.spread_positions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes, in the words of transformers' `Qwen3_5TextConfig`.

    Attributes:
        vocab_size: rows of the embedding.
        layer_types: "linear_attention" or "full_attention" per layer.
        rotary_factor: share of a head that is rotated.
    """

    vocab_size: int = 4096
    hidden_size: int = 128
    intermediate_size: int = 256
    layer_types: tuple[str, ...] = (
        "linear_attention",
        "full_attention",
        "linear_attention",
        "full_attention",
    )
    num_attention_heads: int = 2
    num_key_value_heads: int = 1
    head_dim: int = 32
    rotary_factor: float = 0.25
    rope_theta: float = 1e7
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_head_dim: int = 32
    conv_kernel: int = 4
    norm_eps: float = 1e-6

    @property
    def key_size(self) -> int:
        """Channels of all keys of a linear-attention layer."""
        return self.linear_num_key_heads * self.linear_head_dim

    @property
    def value_size(self) -> int:
        """Channels of all values of a linear-attention layer."""
        return self.linear_num_value_heads * self.linear_head_dim

    @property
    def rotary_size(self) -> int:
        """Channels of a head that are rotated."""
        return int(self.head_dim * self.rotary_factor)

    def config(self, *, eos_id: int, pad_id: int) -> dict[str, object]:
        """Write the `config.json` of a checkpoint."""
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "dtype": "bfloat16",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": len(self.layer_types),
            "layer_types": list(self.layer_types),
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "attn_output_gate": True,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_eps,
            "initializer_range": 0.02,
            "linear_num_key_heads": self.linear_num_key_heads,
            "linear_num_value_heads": self.linear_num_value_heads,
            "linear_key_head_dim": self.linear_head_dim,
            "linear_value_head_dim": self.linear_head_dim,
            "linear_conv_kernel_dim": self.conv_kernel,
            "max_position_embeddings": CONTEXT_TOKENS,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": self.rotary_factor,
            },
            "mtp_num_hidden_layers": 1,
            "mtp_use_dedicated_embeddings": False,
            "tie_word_embeddings": True,
            "use_cache": True,
            "eos_token_id": eos_id,
            "pad_token_id": pad_id,
        }


ASSET: Final = Path(__file__).resolve().parents[2] / "ninfer" / "assets" / "tiny-hybrid"
"""Where the model ships."""
