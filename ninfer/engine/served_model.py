"""Loads what is served: model, tokenizer, chat template, measurements. Knows nothing about caching or HTTP."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
import torch

from ninfer.api import Clock, ConfigError
from ninfer.config.settings import Settings
from ninfer.engine.calibration import CalibrationFile
from ninfer.engine.fingerprint import weights_digest
from ninfer.kernels.compiled.opening import open_compiler
from ninfer.kernels.linear import WeightFormat
from ninfer.models.loader import choose_policy, load_config, load_model, load_mtp_head
from ninfer.models.mtp_head import MtpHead
from ninfer.models.resolve import ModelSource, resolve_model
from ninfer.models.transformer import Transformer
from ninfer.text.chat_template import ChatTemplate
from ninfer.text.sampling_defaults import SamplingDefaults
from ninfer.text.tokenizer import Tokenizer

_log = structlog.get_logger(__name__)

_FORMATS: Final[dict[str, WeightFormat]] = {"dense": "plain", "int8": "int8", "int4": "int4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run, and what came with it.

    Attributes:
        name: of the model.
        model: the forward pass.
        tokenizer: text to tokens and back.
        template: conversations to text.
        sampling: how tokens are chosen when a request does not say.
        calibration: measurements of this machine with it.
        weights: digest of its weights.
        weight_format: configured format of weights.
        source: where it was loaded from.
    """

    name: str
    model: Transformer
    tokenizer: Tokenizer
    template: ChatTemplate
    sampling: SamplingDefaults
    calibration: CalibrationFile
    weights: bytes
    weight_format: str
    source: ModelSource

    def load_mtp_head(self) -> MtpHead:
        """Load the head that predicts several tokens.

        Raises:
            ModelError: a tensor is missing, unknown or misshapen.
        """
        return load_mtp_head(self.source, self.model)


def choose_device(name: str) -> torch.device:
    """Return the device to run on.

    Raises:
        ConfigError: CUDA is asked for and not there.
    """
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        msg = 'model.device is "cuda", but torch finds no CUDA device; set it to "cpu" or "auto"'
        raise ConfigError(msg)
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


def load_served_model(settings: Settings, clock: Clock) -> LoadedModel:
    """Load the configured model.

    Raises:
        ModelError: it cannot be found, read or run.
        ConfigError: the settings do not fit it.
    """
    section = settings.model
    if section.threads:
        torch.set_num_threads(section.threads)
    device = choose_device(section.device)
    source = resolve_model(section.name)
    tokenizer = Tokenizer.from_path(source.path)
    sampling = (
        SamplingDefaults.from_path(source.path)
        if section.sampling == "model"
        else SamplingDefaults()
    )
    config = load_config(source)
    if tokenizer.vocab_size > config.vocab_size:
        msg = (
            f"the tokenizer of {source.name} has {tokenizer.vocab_size} tokens, "
            f"the model's vocabulary {config.vocab_size}"
        )
        raise ConfigError(msg)
    dtype: torch.dtype = getattr(torch, section.dtype_name)
    weight_format = _FORMATS[section.weight_format]
    weights = weights_digest(_weight_files(source))
    compiler = None
    # Of any bf16 model something can be compiled: norms and attention at least.
    if device.type == "cpu" and dtype == torch.bfloat16:
        compiler = open_compiler(settings.cache.dir / "code")
    arithmetic = f"{section.dtype_name} {section.weight_format} {device.type}"
    subject = weights + f"{arithmetic} {'torch' if compiler is None else 'compiled'}".encode()
    calibration = CalibrationFile(settings.cache.dir, subject)
    policy = calibration.linear_policy(
        lambda: choose_policy(
            config, dtype=dtype, weight_format=weight_format, device=device, compiler=compiler
        )
    )
    started_s = clock.monotonic_s()
    model = load_model(
        source,
        dtype=dtype,
        weight_format=weight_format,
        policy=policy,
        device=device,
        compiler=compiler,
    )
    _log.info(
        "model_loaded",
        model=source.name,
        family=config.family,
        device=str(device),
        dtype=section.dtype_name,
        compiled=model.linear_policy.compiled,
        seconds=round(clock.monotonic_s() - started_s, 2),
    )
    return LoadedModel(
        name=source.name,
        model=model,
        tokenizer=tokenizer,
        template=ChatTemplate.from_path(source.path, clock=clock),
        sampling=sampling,
        calibration=calibration,
        weights=weights,
        weight_format=section.weight_format,
        source=source,
    )


def _weight_files(source: ModelSource) -> list[Path]:
    if source.kind == "gguf":
        return [source.path]
    return sorted(source.path.glob("*.safetensors"))
