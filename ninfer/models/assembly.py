"""Builds a model from named tensors. Knows nothing about file formats."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import torch

from ninfer.kernels.paged_attention import SegmentKernel
from ninfer.models.build_options import BuildOptions
from ninfer.models.compiling import can_compile_states, compiling
from ninfer.models.config import ModelConfig
from ninfer.models.decoder_layer import DecoderLayer
from ninfer.models.delta_net import DeltaNet
from ninfer.models.layer_builder import LayerBuilder
from ninfer.models.operator_builder import OperatorBuilder
from ninfer.models.rope_frequencies import inverse_frequencies
from ninfer.models.tensor_shapes import EMBEDDING, FINAL_NORM, OUTPUT
from ninfer.models.transformer import Transformer, TransformerWeights
from ninfer.models.weight_file import FREQUENCY_FACTORS, WeightFile, check_shapes, has_mtp_head

if TYPE_CHECKING:
    from ninfer.kernels.compiled.row_kernels import RowKernels
    from ninfer.models.compiled_step import CompiledStep

NUM_THREADS: Final = 2
"""Threads that read and pack weights. More would hold more unpacked layers in memory at once."""

Progress = Callable[[int, int], None]
"""Called with (layers done, layers in all) while a model loads; must return quickly."""


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
        CompilingFailed: the options want compiled steps, and numba cannot compile them.
    """
    check_shapes(file.shapes, config)
    rows = _row_kernels(options)
    operators = OperatorBuilder(config, options, rows)
    layer_builder = LayerBuilder(config, file, options, rows=rows)
    embedding = file.read_weight(EMBEDDING)
    output = embedding if config.tie_embeddings else file.read_weight(OUTPUT)
    layers: list[DecoderLayer] = []
    # Packing a weight uses one thread and does not hold the interpreter lock.
    with ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="ninfer-load") as pool:
        packed_output = pool.submit(operators.output, output)
        for layer in pool.map(layer_builder.layer, range(config.num_layers)):
            layers.append(layer)
            if progress is not None:
                progress(len(layers), config.num_layers)
    _compile_states(config, layers, options)
    frequencies = inverse_frequencies(config)
    if FREQUENCY_FACTORS in file.shapes:
        frequencies = frequencies / file.read_tensor(FREQUENCY_FACTORS).float()
    weights = TransformerWeights(
        embedding=embedding.dense.to(options.device, options.dtype),
        layers=layers,
        final_norm=operators.norm(file.read_tensor(FINAL_NORM)),
        output=packed_output.result(),
        inverse_frequencies=frequencies.to(options.device),
        has_mtp_head=has_mtp_head(file.shapes, config),
    )
    compiled = _compiled_step(config, weights, options)
    return Transformer(config, weights, options, compiled, _segment_kernel(options))


def _compiled_step(
    config: ModelConfig, weights: TransformerWeights, options: BuildOptions
) -> "CompiledStep | None":
    if options.policy.compiled is None or options.compiler is None:
        return None
    from ninfer.models.compiled_step import CompiledStep  # noqa: PLC0415 - needs an extra

    with compiling():
        return CompiledStep(config, weights, options.compiler)


def _row_kernels(options: BuildOptions) -> "RowKernels | None":
    if options.compiler is None or options.dtype != torch.bfloat16:
        return None
    from ninfer.kernels.compiled.row_kernels import RowKernels  # noqa: PLC0415 - needs an extra

    with compiling():
        return RowKernels(options.compiler)


def _segment_kernel(options: BuildOptions) -> SegmentKernel | None:
    if options.compiler is None:
        return None
    from ninfer.kernels.compiled.matrix_unit import matrix_unit  # noqa: PLC0415 - needs an extra
    from ninfer.kernels.compiled.tile_attention import TileAttention  # noqa: PLC0415

    with compiling():
        return TileAttention(options.compiler) if matrix_unit() else None


def _compile_states(config: ModelConfig, layers: list[DecoderLayer], options: BuildOptions) -> None:
    if options.compiler is None or not can_compile_states(config, options.dtype):
        return
    with compiling():
        for layer in layers:
            if isinstance(layer.mixer, DeltaNet):
                layer.mixer.compile(options.compiler)
