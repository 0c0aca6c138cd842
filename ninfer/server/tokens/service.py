"""Turns text to tokens and back for clients. Knows nothing about HTTP."""

import asyncio

from ninfer.core.errors import RequestError
from ninfer.server.chat.messages import check_messages
from ninfer.server.context import ServerContext
from ninfer.server.generation.schema import check_token_id
from ninfer.server.tokens.schema import DetokenizeRequest, TokenizeRequest


class TokenService:
    """The served model's tokenizer.

    Args:
        context: of the server.
    """

    def __init__(self, context: ServerContext) -> None:
        """Keep the context."""
        self._context = context

    async def tokenize(self, body: TokenizeRequest) -> dict[str, object]:
        """Return the tokens of a text or conversation, exactly as a completion would use them.

        Raises:
            RequestError: a field is wrong.
        """
        self._context.check_model(body.model)
        body.check()
        token_ids = await asyncio.to_thread(self._token_ids, body)
        return {
            "count": len(token_ids),
            "max_model_len": self._context.engine.model_info.max_context_tokens,
            "tokens": token_ids,
        }

    async def detokenize(self, body: DetokenizeRequest) -> dict[str, object]:
        """Return the text of tokens, without special ones.

        Raises:
            RequestError: a token is not in the vocabulary.
        """
        self._context.check_model(body.model)
        vocab_size = self._context.engine.model_info.vocab_size
        for token_id in body.tokens:
            check_token_id(token_id, vocab_size, param="tokens")
        text = await asyncio.to_thread(self._context.text.decode, body.tokens)
        return {"prompt": text, "content": text}

    def _token_ids(self, body: TokenizeRequest) -> list[int]:
        if body.messages is None:
            return self._context.text.encode(
                body.text or "", add_special=body.add_special_tokens is not False
            )
        check_messages(body.messages)
        try:
            chat = self._context.text.chat_prompt(
                body.messages,
                tools=body.tools or (),
                add_generation_prompt=body.add_generation_prompt is not False,
                options=body.chat_template_kwargs,
            )
        except RecursionError as error:
            raise RequestError("The request is nested too deeply.", param="messages") from error
        return list(chat.token_ids)
