"""Fields that chat and completions share, and what they mean to the sampler. Knows nothing about messages."""

from collections.abc import Mapping
from typing import Annotated, Final, TypeVar

from pydantic import Field, field_validator

from ninfer.core.errors import RequestError
from ninfer.core.sampling import SamplingParams
from ninfer.server.body import RequestBody
from ninfer.server.generation.cache_fields import CacheFields
from ninfer.text.sampling_defaults import SamplingDefaults

_T = TypeVar("_T", int, float)

MAX_STOPS: Final = 16
MAX_STOP_CHARS: Final = 1024
MAX_CHOICES: Final = 128
MAX_TOP_LOGPROBS: Final = 20

_GREEDY_BELOW: Final = 1e-4
"""Dividing logits by less than this overflows float32 for some of them; the result would be greedy anyway."""
_INT64: Final = 2**63

UNSUPPORTED_FIELDS: Final[Mapping[str, tuple[object, ...]]] = {
    # chosen outputs
    "allowed_token_ids": (),
    "bad_words": ([],),
    "grammar": ("",),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "json_schema": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    # samplers
    "dry_multiplier": (0,),
    "early_stopping": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logits_processors": ([],),
    "min_tokens": (0,),
    "mirostat": (0,),
    "skip_special_tokens": (True,),
    "top_a": (0,),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "xtc_probability": (0,),
    # prompts
    "prompt_embeds": (),
    "prompt_logprobs": (False,),
    "truncate_prompt_tokens": (),
    # cache
    "kv_transfer_params": (),
    # service
    "priority": (0,),
    "service_tier": ("auto", "default"),
    "store": (False,),
}
"""Known fields that are refused, with the values that change nothing and are let through."""


class StreamOptions(RequestBody):
    """How a stream looks."""

    include_usage: bool | None = None


class GenerationFields(CacheFields):
    """Fields of both endpoints. Absent and null are the same."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _stops_are_few_and_short(cls, stops: list[str] | None) -> list[str] | None:
        if stops is not None and len(stops) > MAX_STOPS:
            raise ValueError(f"at most {MAX_STOPS} stop strings, not {len(stops)}")
        if any(len(stop) > MAX_STOP_CHARS for stop in stops or ()):
            raise ValueError(f"a stop string has at most {MAX_STOP_CHARS} characters")
        return stops

    @property
    def num_choices(self) -> int:
        """Choices per prompt."""
        return self.n or 1

    @property
    def is_streaming(self) -> bool:
        """True if the answer is wanted in pieces."""
        return bool(self.stream)

    @property
    def includes_usage(self) -> bool:
        """True if a stream ends with a chunk of usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check(self, *, vocab_size: int) -> None:
        """Check what a schema cannot.

        Raises:
            RequestError: a token id is not in the vocabulary, or fields contradict each other.
        """
        if self.stream_options is not None and not self.is_streaming:
            raise RequestError(
                "'stream_options' is only allowed with 'stream': true.", param="stream_options"
            )
        for token_id in self.stop_token_ids or ():
            check_token_id(token_id, vocab_size, param="stop_token_ids")
        self._bias_by_id(vocab_size)

    def sampling(
        self,
        *,
        vocab_size: int,
        defaults: SamplingDefaults,
        num_logprobs: int | None,
        choice: int,
    ) -> SamplingParams:
        """Return how choice number `choice` is sampled; every choice has a seed of its own.

        Args:
            vocab_size: of the model.
            defaults: of absent fields.
            num_logprobs: alternatives per token, None for no log-probabilities.
            choice: from 0.

        Raises:
            RequestError: a token id of `logit_bias` is not in the vocabulary.
        """
        temperature = _given(self.temperature, defaults.temperature)
        return SamplingParams(
            temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
            top_p=_given(self.top_p, defaults.top_p),
            top_k=max(_given(self.top_k, defaults.top_k), 0),
            min_p=_given(self.min_p, defaults.min_p),
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=_given(self.repetition_penalty, defaults.repetition_penalty),
            seed=None if self.seed is None else (self.seed + choice) % _INT64,
            logit_bias=self._bias_by_id(vocab_size),
            num_logprobs=num_logprobs,
        )

    def _bias_by_id(self, vocab_size: int) -> dict[int, float]:
        biases: dict[int, float] = {}
        for key, bias in (self.logit_bias or {}).items():
            if not (key.isascii() and key.isdecimal() and len(key) <= 12):
                raise RequestError(
                    f"Invalid 'logit_bias': keys are token ids, not {key[:40]!r}.",
                    param="logit_bias",
                )
            check_token_id(int(key), vocab_size, param="logit_bias")
            biases[int(key)] = bias
        return biases


def _given(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def check_token_id(token_id: int, vocab_size: int, *, param: str) -> None:
    """Refuse a token id outside the vocabulary.

    Raises:
        RequestError: it is outside.
    """
    if not 0 <= token_id < vocab_size:
        raise RequestError(
            f"Invalid '{param}': token id {token_id} is not in [0, {vocab_size}).", param=param
        )
