"""Token ids to text while they arrive. Knows nothing about stop strings or requests."""

import codecs
from collections.abc import Iterable
from typing import Final

from ninfer.text.token_bytes import TokenBytes

_UTF8_DECODER: Final = codecs.getincrementaldecoder("utf-8")


class IncrementalDetokenizer:
    """Turns a growing sequence of tokens to text, in constant time per token.

    Bytes of a character that is not complete yet are held back. Bytes that can never become a character turn into
    U+FFFD, one for each maximal subpart (Unicode 15, chapter 3.9).

    Invariants:
        concatenated results of push and flush == Tokenizer.decode(all tokens), for byte-level tokenizers
    """

    def __init__(
        self, token_bytes: TokenBytes, *, skipped_ids: frozenset[int] = frozenset()
    ) -> None:
        """Begin an empty text.

        Args:
            token_bytes: bytes of tokens, borrowed.
            skipped_ids: tokens that leave no text (special tokens, as a rule).
        """
        self._token_bytes = token_bytes
        self._skipped_ids = skipped_ids
        self._decoder = _UTF8_DECODER(errors="replace")
        self._strips_space = token_bytes.strips_first_space

    def push(self, token_ids: Iterable[int]) -> str:
        """Append tokens.

        Args:
            token_ids: ids outside the vocabulary leave no text.

        Returns:
            The text that became certain, maybe empty. Never ends inside a character.
        """
        table, skipped = self._token_bytes, self._skipped_ids
        pieces = b"".join([table[token_id] for token_id in token_ids if token_id not in skipped])
        if self._strips_space and pieces:
            self._strips_space = False
            pieces = pieces.removeprefix(b" ")
        return self._decoder.decode(pieces)

    def flush(self) -> str:
        """End the text; return what was held back, with U+FFFD for an incomplete character."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
