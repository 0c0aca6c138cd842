"""What hybrid families have beside attention: gated delta layers and experts, from a Hugging Face config.json.

Knows nothing about weights or files.
"""

from dataclasses import dataclass
from typing import Final, Literal

from ninfer.api.errors import ModelError
from ninfer.models.fields import Fields

LayerKind = Literal["full_attention", "linear_attention"]

_DEFAULT_INTERVAL: Final = 4
"""Every so many layers one has full attention, if the file does not list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNetConfig:
    """Shape of the gated delta layers of a model.

    Attributes:
        num_key_heads: query and key heads.
        num_value_heads: value heads, each with a state; a multiple of `num_key_heads`.
        key_dim: elements of a query or key head.
        value_dim: elements of a value head.
        window: tokens that the convolution sees, the current one included; >= 2.
    """

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    window: int

    def __post_init__(self) -> None:
        """Check what the forward pass relies on.

        Raises:
            ModelError: a shape is impossible.
        """
        if self.num_value_heads % self.num_key_heads:
            raise ModelError(
                f"linear_num_value_heads {self.num_value_heads} is not a multiple of "
                f"linear_num_key_heads {self.num_key_heads}"
            )
        if self.window < 2:
            raise ModelError(f"linear_conv_kernel_dim must be >= 2, got {self.window}")

    @property
    def keys_width(self) -> int:
        """Elements of all key heads."""
        return self.num_key_heads * self.key_dim

    @property
    def values_width(self) -> int:
        """Elements of all value heads."""
        return self.num_value_heads * self.value_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.keys_width + self.values_width


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """Shape of the feed-forward blocks that choose among experts.

    Attributes:
        layers: which layers have one; others have a plain block.
        num_experts: to choose from.
        num_chosen: per token.
        intermediate_size: width of an expert.
        shared_intermediate_size: width of the expert that every token uses.
        normalises: the weights of the chosen ones are made to add up to 1.
    """

    layers: frozenset[int]
    num_experts: int
    num_chosen: int
    intermediate_size: int
    shared_intermediate_size: int
    normalises: bool

    def __post_init__(self) -> None:
        """Check what the forward pass relies on.

        Raises:
            ModelError: more experts are chosen than there are.
        """
        if not 1 <= self.num_chosen <= self.num_experts:
            raise ModelError(
                f"num_experts_per_tok must be 1 to num_experts {self.num_experts}, got {self.num_chosen}"
            )


def read_layer_kinds(fields: Fields, num_layers: int) -> tuple[LayerKind, ...]:
    """Read which layers attend and which keep a recurrent state.

    Raises:
        ModelError: a kind is unknown, the list has another length, or no layer has full attention.
    """
    interval = fields.integer("full_attention_interval", default=_DEFAULT_INTERVAL)
    names = fields.texts("layer_types") or [
        "linear_attention" if (index + 1) % interval else "full_attention"
        for index in range(num_layers)
    ]
    if len(names) != num_layers:
        raise ModelError(
            f"config.json: layer_types has {len(names)} entries for {num_layers} layers"
        )
    kinds: list[LayerKind] = []
    for name in names:
        if name == "full_attention":
            kinds.append("full_attention")
        elif name == "linear_attention":
            kinds.append("linear_attention")
        else:
            raise ModelError(
                f"layer type {name!r} is not supported; supported: full_attention, linear_attention"
            )
    if "full_attention" not in kinds:
        raise ModelError("a model without any full_attention layer is not supported")
    return tuple(kinds)


def read_delta_net(fields: Fields) -> DeltaNetConfig:
    """Read the shape of the gated delta layers.

    Raises:
        ModelError: a field is wrong or does not fit another.
    """
    return DeltaNetConfig(
        num_key_heads=fields.integer("linear_num_key_heads", default=16),
        num_value_heads=fields.integer("linear_num_value_heads", default=32),
        key_dim=fields.integer("linear_key_head_dim", default=128),
        value_dim=fields.integer("linear_value_head_dim", default=128),
        window=fields.integer("linear_conv_kernel_dim", default=4),
    )


def read_experts(fields: Fields, num_layers: int, *, always_normalises: bool) -> ExpertsConfig:
    """Read the shape of the experts.

    Args:
        fields: of the text model.
        num_layers: of the model.
        always_normalises: the family ignores `norm_topk_prob`.

    Raises:
        ModelError: a field is missing, wrong or does not fit another.
    """
    step = fields.integer("decoder_sparse_step", default=1)
    plain = fields.integers("mlp_only_layers")
    return ExpertsConfig(
        layers=frozenset(
            layer for layer in range(num_layers) if layer not in plain and (layer + 1) % step == 0
        ),
        num_experts=fields.integer("num_experts"),
        num_chosen=fields.integer("num_experts_per_tok"),
        intermediate_size=fields.integer("moe_intermediate_size"),
        shared_intermediate_size=fields.integer("shared_expert_intermediate_size"),
        normalises=always_normalises or fields.flag("norm_topk_prob", default=True),
    )
