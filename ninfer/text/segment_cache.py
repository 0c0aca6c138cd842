"""Remembers the tokens of parts of texts, so that a growing conversation is not tokenized anew each turn."""

import json
import re
import threading
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from tokenizers import Tokenizer

_Part = tuple["array[int]", "array[int]"]
"""Token ids of a part, and where they begin in it."""

_MAX_CACHED_CHARS: Final = 32 * 2**20
"""Bound on cached text; tokens and offsets of it take about twice as many bytes."""
_MIN_CACHED_CHARS: Final = 64
"""Shorter parts are tokenized faster than they are worth remembering."""


@dataclass(frozen=True, slots=True)
class SegmentedText:
    """Tokens of a text and the position of each one's first character."""

    token_ids: list[int]
    starts: list[int]


class SegmentCache:
    """Tokenizes texts part by part, the parts being what stands between added tokens.

    A tokenizer cuts a text at its added tokens before anything else, so the parts do not influence each other. Where
    that is not so (a prefix space, tokens that swallow space around them), `over` gives no cache. Thread-safe.

    Invariants:
        encode(text) == backend.encode(text, add_special_tokens=False)
        sum of lengths of cached parts <= 32 Mi characters
    """

    def __init__(self, backend: Tokenizer, pattern: re.Pattern[str], ids: dict[str, int]) -> None:
        """Use `over`, which checks that the tokenizer allows it."""
        self._backend = backend
        self._pattern = pattern
        self._ids = ids
        self._lock = threading.Lock()
        self._parts: OrderedDict[str, _Part] = OrderedDict()
        self._num_chars = 0

    @classmethod
    def over(cls, backend: Tokenizer) -> "SegmentCache | None":
        """Make a cache for a tokenizer, or None if its parts influence each other."""
        added = backend.get_added_tokens_decoder()
        is_plain = all(
            not (token.lstrip or token.rstrip or token.single_word or token.normalized)
            for token in added.values()
        )
        if not is_plain or not added or not _is_byte_level(backend):
            return None
        ids = {token.content: token_id for token_id, token in added.items() if token.content}
        longest_first = sorted(ids, key=len, reverse=True)
        return cls(backend, re.compile(f"({'|'.join(map(re.escape, longest_first))})"), ids)

    def encode(self, text: str) -> SegmentedText:
        """Turn text to tokens, added tokens parsed, nothing put around it.

        Args:
            text: valid Unicode.
        """
        token_ids: list[int] = []
        starts: list[int] = []
        position = 0
        for index, part in enumerate(self._pattern.split(text)):
            if index % 2:
                token_ids.append(self._ids[part])
                starts.append(position)
            elif part:
                ids, offsets = self._part(part)
                token_ids.extend(ids)
                starts.extend([position + offset for offset in offsets])
            position += len(part)
        return SegmentedText(token_ids, starts)

    def _part(self, part: str) -> _Part:
        with self._lock:
            found = self._parts.get(part)
            if found is not None:
                self._parts.move_to_end(part)
                return found
        encoding = self._backend.encode(part, add_special_tokens=False)
        entry = (array("i", encoding.ids), array("i", [start for start, _ in encoding.offsets]))
        if len(part) >= _MIN_CACHED_CHARS:
            with self._lock:
                self._remember(part, entry)
        return entry

    def _remember(self, part: str, entry: _Part) -> None:
        if part not in self._parts:
            self._num_chars += len(part)
        self._parts[part] = entry
        while self._num_chars > _MAX_CACHED_CHARS:
            oldest, _ = self._parts.popitem(last=False)
            self._num_chars -= len(oldest)


def _is_byte_level(backend: Tokenizer) -> bool:
    """Tell whether text is split by byte-level rules only, without a prefix space."""
    splitter = backend.pre_tokenizer
    if splitter is None:
        return False
    state = json.loads(splitter.__getstate__())
    steps = state["pretokenizers"] if state.get("type") == "Sequence" else [state]
    kinds = {step["type"] for step in steps}
    return kinds <= {"ByteLevel", "Digits", "Split", "Punctuation"} and not any(
        step.get("add_prefix_space") for step in steps
    )
