"""What the server needs to turn text to tokens and back. Knows nothing about HTTP or the engine."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from ninfer.text.chat_prompt import ChatPrompt
from ninfer.text.sampling_defaults import SamplingDefaults

__all__ = ["ChatPrompt", "Detokenizer", "JsonObject", "TextPort"]

JsonObject = Mapping[str, object]
"""A JSON object as clients send it."""


class Detokenizer(Protocol):
    """Token ids to text while they arrive."""

    def push(self, token_ids: Iterable[int]) -> str:
        """Append tokens; return text that became certain. Never ends inside a character."""
        ...

    def flush(self) -> str:
        """End the text; return what was held back."""
        ...


class TextPort(Protocol):
    """Tokenizer and chat template of the served model. Thread-safe."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        ...

    @property
    def has_thinking(self) -> bool:
        """True if answers may begin with `<think>`...`</think>`."""
        ...

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """How tokens are chosen when a request does not say."""
        ...

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Return the tokens of `text`. May take a second for a long text; releases the GIL."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`, special tokens left out."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token, also of a special one."""
        ...

    def new_detokenizer(self) -> Detokenizer:
        """Return a detokenizer at the beginning of a text. It leaves out special tokens."""
        ...

    def chat_prompt(
        self,
        messages: Sequence[JsonObject],
        *,
        tools: Sequence[JsonObject] = (),
        add_generation_prompt: bool = True,
        options: Mapping[str, object] | None = None,
        marked_messages: Collection[int] = (),
    ) -> ChatPrompt:
        """Render and tokenize a conversation.

        Args:
            messages: in order.
            tools: empty for none.
            add_generation_prompt: end with the opener of an answer.
            options: further variables of the template.
            marked_messages: indices of messages after which the client wants a checkpoint.

        Raises:
            RequestError: the template refuses the conversation.
        """
        ...
