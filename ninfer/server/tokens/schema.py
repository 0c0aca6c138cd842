"""Request bodies of tokenize and detokenize. Knows nothing about tokenizers."""

from typing import Annotated, Any

from pydantic import Field

from ninfer.core.errors import RequestError
from ninfer.server.body import RequestBody


class TokenizeRequest(RequestBody):
    """`POST /tokenize`: a text, or a conversation."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None

    @property
    def text(self) -> str | None:
        """The text, under either of its names."""
        return self.prompt if self.prompt is not None else self.content

    def check(self) -> None:
        """Check that there is one thing to tokenize.

        Raises:
            RequestError: none, or two.
        """
        if (self.text is None) == (self.messages is None):
            raise RequestError("Give either 'prompt' or 'messages'.", param="prompt")


class DetokenizeRequest(RequestBody):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: list[int]
