"""The request body of completions. Knows nothing about how it is answered."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, field_validator
from typing_extensions import override

from ninfer.core.errors import RequestError
from ninfer.server.errors import UnsupportedField
from ninfer.server.generation.schema import (
    MAX_CHOICES,
    MAX_TOP_LOGPROBS,
    UNSUPPORTED_FIELDS,
    GenerationFields,
)

_UNSUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {**UNSUPPORTED_FIELDS, "suffix": ("",)}
_DEFAULT_MAX_TOKENS: Final = 16
"""OpenAI's."""

PromptText = str
PromptTokens = list[int]


class CompletionRequest(GenerationFields):
    """`POST /v1/completions`. `prompt` is brought to a list of prompts."""

    prompt: list[PromptText] | list[PromptTokens]
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    add_special_tokens: bool | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_prompt_is_a_list(cls, value: object) -> object:
        """Bring a text, texts, tokens or lists of tokens to a list; say what is wrong in our own words."""
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list):
            raise ValueError(  # noqa: TRY004 - pydantic turns it into a field error
                "must be a string, a list of strings, of tokens, or of lists of tokens"
            )
        if not value:
            raise ValueError("must not be empty")
        if _is_tokens(value):
            return [value]
        if len(value) > MAX_CHOICES:
            raise ValueError(f"at most {MAX_CHOICES} prompts, not {len(value)}")
        if not (
            all(isinstance(item, str) for item in value) or all(_is_tokens(item) for item in value)
        ):
            raise ValueError("items must be all strings, all token ids, or all lists of token ids")
        return value

    @classmethod
    @override
    def unsupported_fields(cls) -> Mapping[str, tuple[object, ...]]:
        """Return fields that are refused."""
        return _UNSUPPORTED

    @property
    def completion_limit(self) -> int:
        """Tokens to generate at most."""
        return _DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    def check_completion(self) -> None:
        """Check what a schema cannot.

        Raises:
            RequestError: too many choices in all.
            UnsupportedField: fields that are not supported together.
        """
        if self.best_of is not None and self.best_of != self.num_choices:
            raise UnsupportedField(
                "'best_of' other than 'n' is not supported by this server.", param="best_of"
            )
        if self.echo and self.logprobs is not None:
            raise UnsupportedField(
                "'echo' together with 'logprobs' is not supported by this server.", param="echo"
            )
        if len(self.prompt) * self.num_choices > MAX_CHOICES:
            raise RequestError(
                f"At most {MAX_CHOICES} choices for all prompts together.", param="n"
            )


def _is_tokens(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) for item in value
    )
