"""Where weights come from, and whether they fit a model. Knows nothing about file formats."""

from collections.abc import Mapping
from typing import Final, Protocol

from torch import Tensor

from ninfer.api.errors import ModelError
from ninfer.kernels.weight import Weight
from ninfer.models.config import HYBRID_FAMILIES, ModelConfig
from ninfer.models.tensor_shapes import FUSED_GATE_UP, OUTPUT, draft_head_shapes, expected_shapes

FREQUENCY_FACTORS: Final = "rope_freq_factors"
"""Optional divisors of the rotary frequencies, `[head_dim / 2]`; only GGUF files carry them as a tensor."""
MTP_PREFIX: Final = "mtp."
"""Begins the names of the head that predicts several tokens; loaded by who drafts with it."""

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


def has_fused_experts(found: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a file keeps the weights of all experts of a layer in one tensor."""
    return any(name.endswith(FUSED_GATE_UP) for name in found)


def has_mtp_head(found: Mapping[str, tuple[int, ...]], config: ModelConfig) -> bool:
    """Whether a file has a head that predicts several tokens."""
    return config.family in HYBRID_FAMILIES and any(name.startswith(MTP_PREFIX) for name in found)


def check_shapes(found: Mapping[str, tuple[int, ...]], config: ModelConfig) -> None:
    """Compare a file with what the model needs.

    Raises:
        ModelError: tensors are missing, unknown or of another shape; every one is named, up to eight.
    """
    expected = expected_shapes(config, has_fused_experts=has_fused_experts(found))
    _compare(expected, found, config, what="model")


def check_draft_head(found: Mapping[str, tuple[int, ...]], config: ModelConfig) -> None:
    """Compare the tensors `mtp.*` with what a head that predicts several tokens needs.

    Args:
        found: those tensors only.
        config: of the model.

    Raises:
        ModelError: as `check_shapes` does.
    """
    expected = draft_head_shapes(config, has_fused_experts=has_fused_experts(found))
    _compare(expected, found, config, what="multi-token-prediction head")


def _compare(
    expected: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[int, ...]],
    config: ModelConfig,
    *,
    what: str,
) -> None:
    is_head = any(name.startswith(MTP_PREFIX) for name in expected)
    problems = [
        f"{name}: expected shape {list(shape)}, it is missing"
        if name not in found
        else f"{name}: expected shape {list(shape)}, found {list(found[name])}"
        for name, shape in expected.items()
        if found.get(name) != shape
    ]
    problems += [
        f"{name}: not part of a {config.family} {what}, found shape {list(shape)}"
        for name, shape in found.items()
        if name not in expected and (is_head or not _is_ignorable(name, config))
    ]
    if problems:
        listed = "\n  ".join(problems[:_MAX_LISTED])
        rest = len(problems) - _MAX_LISTED
        more = f"\n  and {rest} more" if rest > 0 else ""
        raise ModelError(f"the weights do not fit the {what}:\n  {listed}{more}")


def _is_ignorable(name: str, config: ModelConfig) -> bool:
    is_tied_output = name == OUTPUT and config.tie_embeddings
    is_draft = config.family in HYBRID_FAMILIES and name.startswith(MTP_PREFIX)
    is_constant = name == FREQUENCY_FACTORS or name.endswith(_IGNORED_SUFFIXES)
    return is_tied_output or is_draft or is_constant
