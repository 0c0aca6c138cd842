"""What bytes each token stands for. Knows nothing about order or state of a text."""

import json
from typing import Final, cast

from tokenizers import Tokenizer

from ninfer.api.errors import ModelError


def _byte_by_char() -> dict[str, int]:
    """Return the byte that each character of byte-level BPE stands for.

    Source: `bytes_to_unicode` in https://github.com/openai/gpt-2/blob/master/src/encoder.py
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


_BYTE_BY_CHAR: Final = _byte_by_char()


class TokenBytes:
    """Maps token ids to bytes such that joined bytes, decoded as UTF-8, are the decoded text.

    Entries are made when first asked for. Not thread-safe beyond what the GIL gives: two threads may compute the
    same entry, with the same result.

    Attributes:
        strips_first_space: the first space of a text is an artefact of encoding and not part of it.
    """

    def __init__(self, backend: Tokenizer) -> None:
        """Look at the decoder of a tokenizer.

        Args:
            backend: kept and read.

        Raises:
            ModelError: texts of this decoder are not a sequence of its tokens' bytes.
        """
        self._backend = backend
        self._cache: dict[int, bytes] = {}
        steps = _decoder_steps(backend)
        kinds = [step.get("type") for step in steps]
        self._is_byte_level = kinds == ["ByteLevel"]
        if not self._is_byte_level and not {"ByteFallback", "Metaspace"} & set(kinds):
            raise ModelError(
                f"tokenizer decoder {kinds} is not supported; supported are ByteLevel, ByteFallback and Metaspace"
            )
        self.strips_first_space = any(
            (step.get("type") == "Strip" and step.get("start", 0) != 0)
            or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
            for step in steps
        )

    def __getitem__(self, token_id: int) -> bytes:
        """Return the bytes of a token; empty for ids outside the vocabulary."""
        found = self._cache.get(token_id)
        if found is None:
            token = self._backend.id_to_token(token_id) if token_id >= 0 else None
            found = self._cache[token_id] = b"" if token is None else self._bytes_of(token)
        return found

    def _bytes_of(self, token: str) -> bytes:
        if self._is_byte_level:
            try:
                return bytes([_BYTE_BY_CHAR[char] for char in token])
            except KeyError:
                return token.encode("utf-8")
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").encode("utf-8")


def _decoder_steps(backend: Tokenizer) -> list[dict[str, object]]:
    decoder = backend.decoder
    if decoder is None:
        raise ModelError("the tokenizer has no decoder")
    state = json.loads(decoder.__getstate__())
    steps = state["decoders"] if state.get("type") == "Sequence" else [state]
    return cast(list[dict[str, object]], steps)
