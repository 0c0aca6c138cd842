"""Traces of requests as data. Knows files and formats; knows nothing about caches."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final, TextIO

from ninfer.api import ConfigError
from ninfer.core.step import PAGE_SIZE_TOKENS

MOONCAKE_BLOCK_TOKENS: Final = 512
_PROMPTS: Final = "prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request. Equal block numbers at equal places mean equal tokens up to there.

    Attributes:
        time_s: since the first request.
        blocks: its prompt in blocks; the last may be filled in part.
        num_prompt_tokens: prompt length; what lies behind the last block is never served.
    """

    time_s: float
    blocks: tuple[int, ...]
    num_prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in the order of their times.

    Attributes:
        name: for people.
        block_tokens: tokens of one block.
        requests: at least one.
    """

    name: str
    block_tokens: int
    requests: tuple[TraceRequest, ...]


def read_trace(path: Path, block_tokens: int = MOONCAKE_BLOCK_TOKENS) -> Trace:
    """Read a trace: JSON lines of the Mooncake project, or the request log of a ninfer server; plain or gzipped.

    Args:
        path: the file.
        block_tokens: tokens of one block of a Mooncake trace; a request log has pages of 64 tokens.

    Raises:
        ConfigError: the file cannot be read, a line is wrong (the text has its number), or it has no request.
    """
    try:
        with _open(path) as lines:
            return _Reader(path, block_tokens).read(lines)
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"trace {path} cannot be read: {reason}") from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


class _Reader:
    def __init__(self, path: Path, block_tokens: int) -> None:
        self._path = path
        self._block_tokens = block_tokens
        self._numbers: dict[object, int] = {}
        self._num_without_digests = 0
        self._is_log = False
        self._line = 0

    def read(self, lines: TextIO) -> Trace:
        requests = sorted(self._requests(lines), key=lambda request: request.time_s)
        if not requests:
            raise ConfigError(self._nothing_found())
        start_s = requests[0].time_s
        shifted = tuple(
            TraceRequest(
                time_s=request.time_s - start_s,
                blocks=request.blocks,
                num_prompt_tokens=request.num_prompt_tokens,
            )
            for request in requests
        )
        block_tokens = PAGE_SIZE_TOKENS if self._is_log else self._block_tokens
        return Trace(name=self._path.name, block_tokens=block_tokens, requests=shifted)

    def _requests(self, lines: TextIO) -> Iterator[TraceRequest]:
        for self._line, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise self._wrong(f"not JSON ({error})") from error
            if not isinstance(record, dict):
                raise self._wrong("not a JSON object")
            if "hash_ids" in record:
                yield self._mooncake(record)
            elif record.get("event") == "request_done":
                self._is_log = True
                yield from self._logged(record)
            elif "event" not in record:
                raise self._wrong(
                    'neither "hash_ids" (Mooncake) nor "event" (request log of ninfer)'
                )

    def _mooncake(self, record: Mapping[str, object]) -> TraceRequest:
        ids = record["hash_ids"]
        if not isinstance(ids, list) or not all(isinstance(number, int) for number in ids):
            raise self._wrong('"hash_ids" is not a list of numbers')
        num_tokens = int(self._number(record, "input_length"))
        if len(ids) != -(-num_tokens // self._block_tokens):
            raise self._wrong(
                f"{len(ids)} hash_ids for {num_tokens} tokens; with blocks of {self._block_tokens} tokens "
                f"there must be {-(-num_tokens // self._block_tokens)}. Give the right --block-tokens"
            )
        return TraceRequest(
            time_s=self._number(record, "timestamp") / 1000,
            blocks=self._interned(ids),
            num_prompt_tokens=num_tokens,
        )

    def _logged(self, record: Mapping[str, object]) -> Iterator[TraceRequest]:
        prompts = record.get(_PROMPTS)
        if prompts is None:
            self._num_without_digests += 1
            return
        if not isinstance(prompts, list) or not all(isinstance(one, dict) for one in prompts):
            raise self._wrong(f'"{_PROMPTS}" is not a list of objects')
        for prompt in prompts:
            digests = prompt.get("page_digests")
            if not isinstance(digests, list) or not all(isinstance(text, str) for text in digests):
                raise self._wrong('"page_digests" is not a list of texts')
            num_tokens = int(self._number(prompt, "prompt_tokens"))
            if len(digests) != num_tokens // PAGE_SIZE_TOKENS:
                raise self._wrong(f"{len(digests)} page_digests for {num_tokens} tokens")
            yield TraceRequest(
                time_s=self._number(record, "timestamp_unix_ms") / 1000,
                blocks=self._interned(digests),
                num_prompt_tokens=num_tokens,
            )

    def _interned(self, names: list[object]) -> tuple[int, ...]:
        numbers = self._numbers
        return tuple([numbers.setdefault(name, len(numbers)) for name in names])

    def _number(self, record: Mapping[str, object], field: str) -> float:
        value = record.get(field)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < inf:
            raise self._wrong(f'"{field}" is {value!r}, not a number from 0 on')
        return value

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"trace {self._path}, line {self._line}: {what}")

    def _nothing_found(self) -> str:
        if self._num_without_digests:
            return (
                f"trace {self._path}: none of {self._num_without_digests} requests has "
                f'"{_PROMPTS}". Set server.request_log_digests = true and log anew'
            )
        return f"trace {self._path} has no request"
