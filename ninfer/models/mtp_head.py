"""The head that predicts several tokens (`mtp.*` weights). Knows nothing about verification or scheduling.

From the hidden state of position p - 1 and token p it predicts token p + 1, and from its own result and that token the
next one. Its attention reads what it saw of earlier positions. The entry of token p stands at position p, so that a page
of draft KV depends on the tokens up to its end and nothing after, like a page of the model; position 0 has no hidden
state before it and therefore no entry, and nothing looks there.

Embedding before hidden state in the joined vector, as in the published checkpoints of Qwen3-Next and Qwen3.5.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from ninfer.api import LaneRows
from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.linear import Linear, LinearPolicy
from ninfer.kernels.paged_attention import plan_attention
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import rotations
from ninfer.kernels.segment import Segment
from ninfer.kernels.weight import Weight
from ninfer.models.attending import attending_segments
from ninfer.models.build_options import BuildOptions
from ninfer.models.compiling import can_compile_head, compiling
from ninfer.models.decoder_layer import DecoderLayer
from ninfer.models.layer_builder import LayerBuilder
from ninfer.models.operator_builder import OperatorBuilder
from ninfer.models.residual_stream import ResidualStream
from ninfer.models.rope_frequencies import inverse_frequencies
from ninfer.models.step import Step
from ninfer.models.tensor_shapes import DRAFT_LAYER
from ninfer.models.transformer import Transformer
from ninfer.models.weight_file import MTP_PREFIX, WeightFile, check_draft_head

if TYPE_CHECKING:
    from ninfer.kernels.compiled.panels import PanelFormat
    from ninfer.models.compiled_head import CompiledHead

MAX_UNPACKED_WEIGHTS: Final = 1 << 20
"""Weights of a head that is held in float32. Measured for a product of one row with 128 x 128 and 512 x 128: 5 and 12 us,
55 and 65 us with packed weights. Unlike those, its bits depend on the rows beside; for guesses that does not matter."""
_FIRST_ENTRY = 1
"""Position of the first entry."""


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """Operators of the head.

    Attributes:
        embedding_norm: of the token's embedding.
        hidden_norm: of the hidden state before it.
        join: from both, one after the other, to the residual stream.
        layer: full attention and a feed-forward block.
        norm: before the output projection, which is the model's.
        inverse_frequencies: float32 `[rotated_dim / 2]`.
    """

    embedding_norm: RmsNorm
    hidden_norm: RmsNorm
    join: Linear
    layer: DecoderLayer
    norm: RmsNorm
    inverse_frequencies: Tensor


class MtpHead:
    """A `ninfer.api.DraftHead`. Stateless between calls: what lasts is in its KV pool.

    Attributes:
        kv_spec: layout of the pool it needs, with the same number of pages as the model's.
    """

    def __init__(
        self,
        model: Transformer,
        weights: MtpWeights,
        options: BuildOptions,
        compiled: "CompiledHead | None" = None,
    ) -> None:
        """Keep the weights.

        Args:
            model: whose head it is; gives embedding and output projection.
            weights: operators.
            options: how they were built.
            compiled: computes what it takes.
        """
        config = model.config
        self.kv_spec = KvLayout(1, config.num_kv_heads, config.head_dim, options.dtype)
        self._model = model
        self._weights = weights
        self._activation_dtype = options.activation_dtype
        self._num_heads = config.num_heads
        self._scale = config.head_dim**-0.5
        self._compiled = compiled
        self._pool: KvPool | None = None

    def bind(self, pool: KvPool) -> None:
        """Use a pool of layout `kv_spec`, page by page beside the model's."""
        self._pool = pool

    @torch.inference_mode()
    def extend(self, lanes: Sequence[LaneRows], hidden: Tensor) -> Tensor:
        """See `ninfer.api.DraftHead.extend`.

        Raises:
            ValueError: no pool is bound, a lane begins before position 1, its page runs are too short, or there is not one hidden
                state for each token.
        """
        if self._pool is None:
            raise ValueError("the head has no KV pool yet")
        token_ids: list[int] = []
        positions: list[int] = []
        last_rows: list[int] = []
        segments: list[Segment] = []
        for lane in lanes:
            if lane.start_tokens < _FIRST_ENTRY:
                raise ValueError(f"lane {lane.lane} begins at position {lane.start_tokens}, not 1")
            segment = Segment(
                len(token_ids),
                len(lane.token_ids),
                lane.start_tokens,
                tuple(lane.runs),
                context_start=_FIRST_ENTRY,
            )
            segments.append(segment)
            token_ids.extend(lane.token_ids)
            positions.extend(range(segment.position_start, segment.position_end))
            last_rows.append(len(token_ids) - 1)
        if len(hidden) != len(token_ids):
            raise ValueError(f"{len(hidden)} hidden states for {len(token_ids)} tokens")
        device = self._model.device
        embedded = self._model.embed(torch.tensor(token_ids, device=device))
        rotation = rotations(
            torch.tensor(positions, device=device),
            self._weights.inverse_frequencies,
            self._activation_dtype,
        )
        if self._compiled is not None and self._compiled.takes(segments):
            contexts = Contexts(segments)
            results = self._compiled.results(embedded, hidden, rotation, contexts, self._pool)
            return results[last_rows]
        x = self._rows(segments, embedded, hidden, rotation, self._pool)
        if len(last_rows) != len(token_ids):
            x = x[torch.tensor(last_rows, device=device)]
        return self._weights.norm(x)

    def _rows(
        self,
        segments: Sequence[Segment],
        embedded: Tensor,
        hidden: Tensor,
        rotation: Tensor,
        pool: KvPool,
    ) -> Tensor:
        """Compute rows up to the last norm: `[num_rows, hidden_size]`."""
        weights, kernel = self._weights, self._model.segment_kernel
        attention = plan_attention(
            pool,
            attending_segments(segments, self.kv_spec, kernel),
            num_heads=self._num_heads,
            scale=self._scale,
            kernel=kernel,
        )
        joined = torch.cat((weights.embedding_norm(embedded), weights.hidden_norm(hidden)), dim=-1)
        stream = ResidualStream(weights.join(joined))
        weights.layer.add_to(stream, Step(rotation, attention))
        return stream.rows()

    @torch.inference_mode()
    def choose(self, hidden: Tensor) -> list[int]:
        """See `ninfer.api.DraftHead.choose`."""
        choices: list[int] = self._model.logits(hidden).argmax(dim=-1).tolist()
        return choices


def build_mtp_head(model: Transformer, file: WeightFile, options: BuildOptions) -> MtpHead:
    """Read the weights `mtp.*` and build the head.

    Args:
        model: whose head it is.
        file: the checkpoint.
        options: as the model was built with, or without a compiler.

    Raises:
        ModelError: a tensor is missing, unknown or misshapen, or cannot be read.
        CompilingFailed: there is a compiler, and numba cannot compile the head.
    """
    config, head = model.config, _HeadTensors(file)
    check_draft_head(head.shapes, config)
    is_compiled = options.compiler is not None and can_compile_head(config, options.dtype)
    held = _held(options, head.shapes, is_compiled=is_compiled)
    operators = OperatorBuilder(config, held)

    def norm(name: str) -> RmsNorm:
        return operators.norm(head.read_tensor(f"{MTP_PREFIX}{name}.weight"))

    weights = MtpWeights(
        embedding_norm=norm("pre_fc_norm_embedding"),
        hidden_norm=norm("pre_fc_norm_hidden"),
        join=operators.linear(head.read_weight(f"{MTP_PREFIX}fc.weight")),
        layer=LayerBuilder(config, head, held, kv_dtype=options.dtype).draft_layer(DRAFT_LAYER),
        norm=norm("norm"),
        inverse_frequencies=inverse_frequencies(config).to(options.device),
    )
    return MtpHead(model, weights, options, _compiled(model, weights, options))


def _held(
    options: BuildOptions, shapes: Mapping[str, tuple[int, ...]], *, is_compiled: bool
) -> BuildOptions:
    """Hold a small head in float32 on a CPU: its products take less time than packing their inputs."""
    if options.device.type != "cpu" or options.dtype != torch.bfloat16:
        return options
    num_weights = sum(math.prod(shape) for shape in shapes.values())
    if num_weights <= MAX_UNPACKED_WEIGHTS:
        options = replace(options, dtype=torch.float32, policy=LinearPolicy())
    if not is_compiled:
        return options
    policy = options.policy
    form: PanelFormat = "bf16"
    if policy.max_few_rows and (policy.few == "int4" or policy.few == "int8"):
        form = policy.few
    return replace(options, policy=LinearPolicy(many=policy.many, compiled=form))


def _compiled(
    model: Transformer, weights: MtpWeights, options: BuildOptions
) -> "CompiledHead | None":
    if options.compiler is None or not can_compile_head(model.config, options.dtype):
        return None
    from ninfer.models.compiled_head import CompiledHead  # noqa: PLC0415 - needs an extra

    with compiling():
        return CompiledHead(model.config, weights, options.compiler)


class _HeadTensors:
    """The part of a `WeightFile` that is the head's."""

    def __init__(self, file: WeightFile) -> None:
        self._file = file

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `WeightFile`."""
        found = self._file.shapes
        return {name: shape for name, shape in found.items() if name.startswith(MTP_PREFIX)}

    def read_weight(self, name: str) -> Weight:
        """See `WeightFile`."""
        return self._file.read_weight(name)

    def read_tensor(self, name: str) -> Tensor:
        """See `WeightFile`."""
        return self._file.read_tensor(name)
