"""Where weights come from, and which tensors a model must find there. Knows nothing about file formats."""

from collections.abc import Mapping
from typing import Final, Protocol

from torch import Tensor

from ninfer.api.errors import ModelError
from ninfer.kernels.weight import Weight
from ninfer.models.config import ModelConfig

EMBEDDING: Final = "model.embed_tokens.weight"
OUTPUT: Final = "lm_head.weight"
FINAL_NORM: Final = "model.norm.weight"
FREQUENCY_FACTORS: Final = "rope_freq_factors"
"""Optional divisors of the rotary frequencies, `[head_dim / 2]`; only GGUF files carry them as a tensor."""

_IGNORED_SUFFIXES: Final = ("rotary_emb.inv_freq",)
_MAX_LISTED: Final = 8


class WeightFile(Protocol):
    """A set of named tensors under the names that Hugging Face checkpoints use."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor."""
        ...

    def read_weight(self, name: str) -> Weight:
        """Read a matrix, outputs first; query and key heads as halves (see `kernels.rope`)."""
        ...

    def read_tensor(self, name: str) -> Tensor:
        """Read any tensor; float."""
        ...


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """List the tensors that a model consists of."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (config.vocab_size, hidden),
        FINAL_NORM: (hidden,),
    }
    if not config.tie_embeddings:
        shapes[OUTPUT] = (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        for name, shape in _layer_shapes(config).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    return shapes


def check_shapes(found: Mapping[str, tuple[int, ...]], config: ModelConfig) -> None:
    """Compare a file with what the model needs.

    Raises:
        ModelError: tensors are missing, unknown or of another shape; every one is named, up to eight.
    """
    expected = expected_shapes(config)
    problems = [
        f"{name}: expected shape {list(shape)}, it is missing"
        if name not in found
        else f"{name}: expected shape {list(shape)}, found {list(found[name])}"
        for name, shape in expected.items()
        if found.get(name) != shape
    ]
    problems += [
        f"{name}: not part of a {config.family} model, found shape {list(shape)}"
        for name, shape in found.items()
        if name not in expected and not _is_ignorable(name, config)
    ]
    if problems:
        listed = "\n  ".join(problems[:_MAX_LISTED])
        rest = len(problems) - _MAX_LISTED
        more = f"\n  and {rest} more" if rest > 0 else ""
        raise ModelError(f"the weights do not fit the model:\n  {listed}{more}")


def _is_ignorable(name: str, config: ModelConfig) -> bool:
    is_tied_output = name == OUTPUT and config.tie_embeddings
    return is_tied_output or name == FREQUENCY_FACTORS or name.endswith(_IGNORED_SUFFIXES)


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.qk_norm:
        shapes["self_attn.q_norm.weight"] = (config.head_dim,)
        shapes["self_attn.k_norm.weight"] = (config.head_dim,)
    if config.attention_bias:
        shapes["self_attn.q_proj.bias"] = (queries,)
        shapes["self_attn.k_proj.bias"] = (keys,)
        shapes["self_attn.v_proj.bias"] = (keys,)
        shapes["self_attn.o_proj.bias"] = (hidden,)
    return shapes
