"""The tokenizer of a model: text to token ids and back. Knows nothing about chat or requests."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from tokenizers import Tokenizer as Backend

from ninfer.api.errors import ModelError
from ninfer.text.detokenizer import IncrementalDetokenizer
from ninfer.text.gguf_metadata import read_gguf_metadata
from ninfer.text.gguf_tokenizer import build_gguf_backend
from ninfer.text.segment_cache import SegmentCache
from ninfer.text.token_bytes import TokenBytes
from ninfer.text.well_formed import well_formed

_TURN_ENDS: Final = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
)
"""Special tokens that end an answer in some chat format, whatever the configuration files say."""


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Tokens of a text and where they begin.

    Attributes:
        token_ids: the tokens.
        starts: position of the first character of each token; ascending, not strictly (a character can be
            several tokens). BOS starts at 0.
        num_chars: length of the text.
    """

    token_ids: list[int]
    starts: list[int]
    num_chars: int


class Tokenizer:
    """Text to token ids and back. Thread-safe.

    Attributes:
        vocab_size: one more than the highest token id. A model's logits may have more columns.
        bos_id: first token of a text, None if the tokenizer has none.
        eos_ids: tokens that end an answer.
        special_ids: tokens that are no text: left out when detokenizing.
        token_bytes: bytes of each token.
    """

    def __init__(
        self, backend: Backend, *, bos_id: int | None = None, eos_ids: Iterable[int] = ()
    ) -> None:
        """Wrap a tokenizer.

        Args:
            backend: owned from now on.
            bos_id: first token of a text.
            eos_ids: tokens that end an answer, besides the well-known ones of chat formats.
        """
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(
            token_id for token_id, token in added.items() if token.special
        )
        ends = {token_id for token_id, token in added.items() if token.content in _TURN_ENDS}
        self.bos_id = bos_id
        self.eos_ids: frozenset[int] = frozenset(eos_ids) | ends
        self.vocab_size: int = max(backend.get_vocab().values(), default=-1) + 1
        self.token_bytes = TokenBytes(backend)
        self._segments = SegmentCache.over(backend)

    @classmethod
    def from_path(cls, path: Path) -> "Tokenizer":
        """Open the tokenizer of a model, a directory or a `.gguf` file.

        Raises:
            ModelError: there is none, or it is not supported.
        """
        if path.is_dir():
            return cls.from_directory(path)
        return cls.from_gguf_metadata(read_gguf_metadata(path))

    @classmethod
    def from_directory(cls, path: Path) -> "Tokenizer":
        """Open the tokenizer of a Hugging Face model directory.

        Args:
            path: has `tokenizer.json`, and maybe `tokenizer_config.json`, `generation_config.json`, `config.json`.

        Raises:
            ModelError: a file is missing or damaged.
        """
        file = path / "tokenizer.json"
        if not file.is_file():
            raise ModelError(f"{path} has no tokenizer.json")
        try:
            backend = Backend.from_file(str(file))
        except Exception as error:
            raise ModelError(f"cannot read {file}: {error}") from error
        backend.no_padding()
        backend.no_truncation()
        config = read_json_object(path / "tokenizer_config.json")
        bos_id = _token_id(backend, config.get("bos_token"))
        eos_id = _token_id(backend, config.get("eos_token"))
        eos_ids = set() if eos_id is None else {eos_id}
        for name in ("generation_config.json", "config.json"):
            eos_ids |= _ids(read_json_object(path / name).get("eos_token_id"))
        return cls(backend, bos_id=bos_id, eos_ids=eos_ids)

    @classmethod
    def from_gguf_metadata(cls, metadata: Mapping[str, object]) -> "Tokenizer":
        """Build the tokenizer that GGUF metadata describes.

        Raises:
            ModelError: a key is missing or the kind is not supported; the text names those that are.
        """
        backend = build_gguf_backend(metadata)
        bos_id = metadata.get("tokenizer.ggml.bos_token_id")
        eos_ids: set[int] = set()
        for name in ("eos", "eot", "eom"):
            eos_ids |= _ids(metadata.get(f"tokenizer.ggml.{name}_token_id"))
        return cls(backend, bos_id=bos_id if isinstance(bos_id, int) else None, eos_ids=eos_ids)

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Turn text to tokens. Special tokens spelled in the text become those tokens.

        Args:
            text: lone surrogates count as U+FFFD.
            add_special: add BOS (or EOS) if the model wants it around a text. False for rendered chats, whose
                template writes it.
        """
        text = well_formed(text)
        if self._segments is not None and not add_special:
            return self._segments.encode(text).token_ids
        return list(self._backend.encode(text, add_special_tokens=add_special).ids)

    def encode_with_starts(self, text: str, *, add_special: bool = False) -> EncodedText:
        """Turn text to tokens and tell where each begins; see `encode`.

        Positions count the characters of `well_formed(text)`.
        """
        text = well_formed(text)
        if self._segments is not None and not add_special:
            encoded = self._segments.encode(text)
            return EncodedText(encoded.token_ids, encoded.starts, len(text))
        encoding = self._backend.encode(text, add_special_tokens=add_special)
        return EncodedText(list(encoding.ids), [start for start, _ in encoding.offsets], len(text))

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Turn tokens to text; ids outside the vocabulary leave none."""
        return self._backend.decode(list(token_ids), skip_special_tokens=skip_special)

    def detokenizer(self, *, skip_special: bool = True) -> IncrementalDetokenizer:
        """Begin a text that grows token by token."""
        skipped = self.special_ids if skip_special else frozenset()
        return IncrementalDetokenizer(self.token_bytes, skipped_ids=skipped)

    def token_id(self, token: str) -> int | None:
        """Search the id of a token by its exact spelling."""
        return self._backend.token_to_id(token)

    def token_text(self, token_id: int) -> str:
        """Return the text of one token alone, U+FFFD where its bytes are no whole characters."""
        return self.token_bytes[token_id].decode("utf-8", "replace")

    def digest(self) -> bytes:
        """Return 32 bytes that differ for tokenizers whose ids mean different tokens."""
        digest = hashlib.sha256()
        for token, token_id in sorted(self._backend.get_vocab().items()):
            digest.update(f"{token_id} {token}\0".encode("utf-8", "surrogatepass"))
        return digest.digest()


def read_json_object(path: Path) -> dict[str, object]:
    """Read a JSON object, empty if the file does not exist.

    Raises:
        ModelError: the file is damaged or no object.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} is not a JSON object")
    return cast(dict[str, object], content)


def _token_id(backend: Backend, token: object) -> int | None:
    """Look up a token given as text or as `{"content": text}`."""
    if isinstance(token, dict):
        token = token.get("content")
    return backend.token_to_id(token) if isinstance(token, str) else None


def _ids(value: object) -> set[int]:
    """Return the ids in a number, a list of numbers, or nothing."""
    if isinstance(value, list):
        return {item for item in value if isinstance(item, int)}
    return {value} if isinstance(value, int) else set()
