"""Loads a model from disk. Knows nothing about how it will be scheduled."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
import torch

from ninfer.api.errors import ModelError
from ninfer.kernels.linear import LinearPolicy, WeightFormat
from ninfer.kernels.linear_calibration import calibrate
from ninfer.models.assembly import Progress, assemble
from ninfer.models.build_options import BuildOptions
from ninfer.models.compiling import CompilingFailed, can_compile
from ninfer.models.config import ModelConfig, config_from_gguf, config_from_hf
from ninfer.models.gguf_file import GgufFile
from ninfer.models.gguf_weights import GgufWeights
from ninfer.models.mtp_head import MtpHead, build_mtp_head
from ninfer.models.resolve import ModelSource
from ninfer.models.safetensors_weights import SafetensorsWeights
from ninfer.models.transformer import Transformer
from ninfer.models.weight_file import WeightFile
from ninfer.models.wrapped_weights import WrappedWeights
from ninfer.obs.clock import SystemClock

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler

_log = structlog.get_logger(__name__)


def load_config(source: ModelSource) -> ModelConfig:
    """Read a model's configuration without its weights.

    Raises:
        ModelError: the files are unreadable or the architecture is not supported.
    """
    return _open(source)[0]


def load_model(
    source: ModelSource,
    *,
    dtype: torch.dtype = torch.bfloat16,
    weight_format: WeightFormat = "plain",
    policy: LinearPolicy | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    compiler: "Compiler | None" = None,
) -> Transformer:
    """Load a model.

    Args:
        source: from `resolve_model`.
        dtype: element type of KV and of unpacked weights: bfloat16, float32 or float64.
        weight_format: "int8" or "int4" pack a second copy of the weights for steps of few rows on a CPU.
        policy: kernels to use, from an earlier `choose_policy`; None to measure now.
        device: where the model runs.
        progress: told about every layer.
        compiler: for compiled steps; None to compute with torch alone.

    Raises:
        ModelError: the files are unreadable, the architecture is not supported, or tensors do not fit it.

    Reads the whole file; seconds for 100 MB.
    """
    config, file = _open(source)
    device = torch.device(device)
    if policy is None or (policy.compiled and compiler is None):
        policy = choose_policy(
            config, dtype=dtype, weight_format=weight_format, device=device, compiler=compiler
        )
    try:
        return assemble(config, file, BuildOptions(dtype, policy, device, compiler), progress)
    except CompilingFailed as error:
        _log.warning("compiled_kernels_off", reason=str(error))
    policy = choose_policy(config, dtype=dtype, weight_format=weight_format, device=device)
    return assemble(config, file, BuildOptions(dtype, policy, device), progress)


def load_mtp_head(source: ModelSource, model: Transformer) -> MtpHead:
    """Load the head that predicts several tokens of a model that is loaded.

    Args:
        source: that the model was loaded from.
        model: with `has_mtp_head`.

    Raises:
        ModelError: the files are unreadable, or a tensor is missing, unknown or misshapen.
    """
    _, file = _open(source)
    try:
        return build_mtp_head(model, file, model.options)
    except CompilingFailed as error:
        _log.warning("compiled_draft_head_off", reason=str(error))
    return build_mtp_head(model, file, replace(model.options, compiler=None))


def choose_policy(
    config: ModelConfig,
    *,
    dtype: torch.dtype = torch.bfloat16,
    weight_format: WeightFormat = "plain",
    device: torch.device | str = "cpu",
    seconds: Callable[[], float] | None = None,
    compiler: "Compiler | None" = None,
) -> LinearPolicy:
    """Measure which matrix kernels suit this machine and model; see `kernels.linear_calibration`.

    Args:
        config: the model; its largest layer is measured.
        dtype: element type of the weights.
        weight_format: which packed weights are allowed.
        device: where the model runs; anything but a CPU is plain.
        seconds: a monotonic clock; None for the system's.
        compiler: for compiled steps, where the model can be compiled; None to compute with torch alone.

    Returns:
        Plain data that can be stored and given to `load_model`, so that two runs compute with equal kernels.
    """
    if torch.device(device).type != "cpu":
        return LinearPolicy()
    clock = seconds or SystemClock().monotonic_s
    shape = 2 * config.intermediate_size, config.hidden_size
    if compiler is not None and can_compile(config, dtype):
        try:
            return calibrate(weight_format, *shape, dtype=dtype, seconds=clock, compiler=compiler)
        except Exception as error:  # noqa: BLE001 - whatever a compiler says, torch computes too
            _log.warning("compiled_kernels_off", reason=f"{type(error).__name__}: {error}")
    return calibrate(weight_format, *shape, dtype=dtype, seconds=clock)


def _open(source: ModelSource) -> tuple[ModelConfig, WeightFile]:
    if source.kind == "gguf":
        file = GgufFile(source.path)
        shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
        config = config_from_gguf(file.metadata, shapes)
        return config, GgufWeights(file, config)
    path = source.path / "config.json"
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    config, weights = config_from_hf(raw), SafetensorsWeights(source.path)
    return config, WrappedWeights(weights) if WrappedWeights.is_wrapped(weights) else weights
