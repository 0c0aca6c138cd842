"""The text side of the served model, from a tokenizer and a chat template. Knows nothing about HTTP."""

from collections.abc import Collection, Mapping, Sequence

from ninfer.server.text_port import ChatPrompt, Detokenizer, JsonObject
from ninfer.text.chat_prompt import build_chat_prompt
from ninfer.text.chat_template import ChatTemplate
from ninfer.text.sampling_defaults import SamplingDefaults
from ninfer.text.tokenizer import Tokenizer


class ServedText:
    """Implements `TextPort`.

    Args:
        tokenizer: the model's.
        template: the model's.
        sampling: what the model wants; None for the defaults of OpenAI.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        sampling: SamplingDefaults | None = None,
    ) -> None:
        """Keep all."""
        self._sampling = sampling or SamplingDefaults()
        self._tokenizer = tokenizer
        self._template = template

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self._tokenizer.eos_ids

    @property
    def has_thinking(self) -> bool:
        """True if the template knows `<think>`."""
        return "<think>" in self._template.source

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """How tokens are chosen when a request does not say."""
        return self._sampling

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Return the tokens of `text`."""
        return self._tokenizer.encode(text, add_special=add_special)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`, special tokens left out."""
        return self._tokenizer.decode(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token."""
        return self._tokenizer.token_bytes[token_id]

    def new_detokenizer(self) -> Detokenizer:
        """Return a detokenizer at the beginning of a text."""
        return self._tokenizer.detokenizer()

    def chat_prompt(
        self,
        messages: Sequence[JsonObject],
        *,
        tools: Sequence[JsonObject] = (),
        add_generation_prompt: bool = True,
        options: Mapping[str, object] | None = None,
        marked_messages: Collection[int] = (),
    ) -> ChatPrompt:
        """Render and tokenize a conversation; see `build_chat_prompt`."""
        return build_chat_prompt(
            self._template,
            self._tokenizer,
            messages,
            tools=tools or None,
            add_generation_prompt=add_generation_prompt,
            options=options,
            marked_messages=marked_messages,
        )
