"""The sections of `ninfer.toml`, one frozen model each. Unknown keys are errors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from ninfer.config.cache_dir import parse_cache_dir
from ninfer.config.kv_capacity import AUTO, KvCapacityField
from ninfer.config.quantities import ByteSize, Count, Duration, PositiveCount, reject_bool
from ninfer.config.tiers import DEVICE_TIER_NAME, TierEntry, default_tiers

DtypeName = Literal["bfloat16", "float32", "float64"]
WeightFormat = Literal["dense", "int8", "int4"]


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ModelSection(Section):
    """`[model]`: which model runs, and in which arithmetic."""

    name: str = Field(default="smollm2", min_length=1)
    """Model to serve: the name of an embedded model, or the path of a model folder."""
    dtype: Literal["auto", "bfloat16", "float32", "float64"] = "auto"
    """Number format of activations and KV. "auto" is bfloat16."""
    weights: Literal["auto", "dense", "int8", "int4"] = "auto"
    """Number format of the weights. "dense" keeps them in `dtype`; "auto" is dense."""
    max_context: Count = 0
    """Longest context served, prompt and answer together. Unit: tokens; 0 is what the model allows."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device the model runs on. "auto" is cuda where there is one, else cpu."""
    sampling: Literal["model", "openai"] = "model"
    """Temperature and the like of requests that do not say: what the model's generation_config.json wants, or 1.0 and no limits."""
    threads: Count = 0
    """CPU threads for arithmetic. Unit: threads; 0 leaves it to torch."""

    @property
    def dtype_name(self) -> DtypeName:
        """`dtype` with "auto" resolved."""
        return "bfloat16" if self.dtype == "auto" else self.dtype

    @property
    def weight_format(self) -> WeightFormat:
        """`weights` with "auto" resolved."""
        return "dense" if self.weights == "auto" else self.weights


class EngineSection(Section):
    """`[engine]`: how much runs at once, and in what portions."""

    kv_capacity: KvCapacityField = AUTO
    """KV on the device. Unit: tokens as a number, or bytes as text such as "8GiB"; "auto" takes what fits."""
    state_images: Count = 0
    """Saved states of hybrid models on the device. Unit: states; 0 is 4 per lane, and more in a quarter of the room of KV."""
    max_concurrency: PositiveCount = 4
    """Requests that run at the same time (lanes). Unit: requests."""
    prefill_chunk_tokens: PositiveCount | Literal["auto"] = "auto"
    """Prompt tokens computed in one step while no other request runs. Unit: tokens; "auto" is 512, or up to 4096 if they take a tenth of a second."""
    prefill_chunk_tokens_shared: PositiveCount = 128
    """Prompt tokens computed in one step while other requests generate. Unit: tokens."""
    max_queue: PositiveCount = 256
    """Requests that may wait; more are refused with HTTP 429. Unit: requests."""
    queue_timeout: Duration = 300.0
    """How long a request may wait to start. Unit: duration ("300s", "5m"); a plain number is seconds."""
    max_head_passes: Count = 16
    """How often later requests may pass a blocked head of the queue. Unit: requests; 0 is strict order."""


class CacheSection(Section):
    """`[cache]`: where contexts are kept, and who decides."""

    enabled: bool = True
    """Reuse contexts at all. Off computes every prompt from its first token."""
    matcher: str = Field(default="radix", min_length=1)
    """Kind of checkpoint matcher."""
    policy: str = Field(default="costmodel", min_length=1)
    """Kind of placement policy."""
    transfer_deadline: Duration = Field(default=10.0, gt=0)
    """A transfer between tiers that takes longer is a miss. Unit: duration ("10s", "250ms")."""
    retention_default: Duration = 0.0
    """How long contexts stay protected whose request does not ask for it. Unit: duration ("5m"); 0 is not at all."""
    retention_max: Duration = 86_400.0
    """Longest retention that is granted. Unit: duration ("24h"); 0 grants none."""
    retention_budget: Annotated[float, BeforeValidator(reject_bool), Field(ge=0, le=0.9)] = 0.5
    """Share of each tier that retained contexts may be protected in. Unit: fraction, 0..0.9."""
    dir: Annotated[Path, BeforeValidator(parse_cache_dir)] = Field(
        default_factory=lambda: parse_cache_dir("auto")
    )
    """Folder for files of ninfer. "auto" is the folder for caches of the current user."""
    tiers: tuple[TierEntry, ...] = Field(default_factory=default_tiers)
    """Tiers below the device, fastest first. The default is `host` ("auto") and `disk` (8GiB); [] is none."""
    policy_options: Mapping[str, Any] = Field(default_factory=dict)
    """Options of the placement policy; `ninfer plugins show` lists them."""
    matcher_options: Mapping[str, Any] = Field(default_factory=dict)
    """Options of the checkpoint matcher; `ninfer plugins show` lists them."""

    @field_validator("tiers")
    @classmethod
    def _names_are_unique(cls, tiers: tuple[TierEntry, ...]) -> tuple[TierEntry, ...]:
        names = [tier.name for tier in tiers]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            msg = f"two tiers have the name {', '.join(duplicates)}; names are unique"
            raise ValueError(msg)
        if DEVICE_TIER_NAME in names:
            msg = f'"{DEVICE_TIER_NAME}" is the name of the built-in first tier; choose another'
            raise ValueError(msg)
        return tiers


class SpecSection(Section):
    """`[spec]`: speculative decoding."""

    decoder: str = Field(default="auto", min_length=1)
    """Kind of speculative decoder, or "off". "auto" is mtp for a model that has such a head, else off."""
    draft_tokens: Annotated[int, BeforeValidator(reject_bool), Field(ge=0, le=16)] = 3
    """Tokens guessed per step at most. Unit: tokens, 0..16, with mtp 0..5; 0 switches speculation off."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Options of the speculative decoder; `ninfer plugins show` lists them."""


class ServerSection(Section):
    """`[server]`: the HTTP interface."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on."""
    port: Annotated[int, BeforeValidator(reject_bool), Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 lets the system choose."""
    api_keys: tuple[str, ...] = Field(default=(), repr=False)
    """Keys of which a client must send one as a bearer token. Empty lets everybody in."""
    served_name: str = ""
    """Model name that clients see. Empty is `model.name`."""
    max_body: Annotated[ByteSize, Field(gt=0)] = 8 * 1024**2
    """Largest request body. Unit: bytes ("8MiB")."""
    request_log: str = ""
    """File that gets one JSON line per finished request. Empty is none."""
    request_log_digests: bool = False
    """Add salted digests of the pages of prompts to the request log, so that `ninfer simulate` can replay it."""
    drain_timeout: Duration = 30.0
    """How long running requests may finish after a stop signal. Unit: duration ("30s")."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the server; ["*"] is all. Empty is none."""

    @field_validator("api_keys")
    @classmethod
    def _keys_are_not_empty(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if any(not key.strip() for key in keys):
            msg = "an API key is empty"
            raise ValueError(msg)
        return keys


class LogSection(Section):
    """`[log]`: what is logged, and how it looks."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least important level that is logged."""
    format: Literal["auto", "json", "console"] = "auto"
    """Form of log lines. "auto" is console on a terminal, else json."""


class PluginsSection(Section):
    """`[plugins]`: which installed plugins are looked at."""

    disabled: tuple[str, ...] = ()
    """Names of plugins that are not imported."""
    strict: bool = False
    """Stop also when a plugin is broken that the configuration does not use."""
    call_budget: Duration = Field(default=0.05, gt=0)
    """Longest call of a policy or matcher, 100 times that for a decoder, 20 times for a tier; slower ones put the plugin aside. Unit: duration."""
