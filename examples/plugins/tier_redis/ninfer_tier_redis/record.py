"""An image as bytes on the server: its value and its entry in the index. Knows nothing about connections.

value = magic, header length, payload length, checksum | header | payload
entry = charge, 12 digits | number of the change, 16 digits | CRC-32, header length, payload length, checksum | header

Scripts read the charge and fill in the number.
"""

import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from ninfer.api import ImageKey, ImageRecord

MAX_VALUE_BYTES: Final = 512 << 20
"""Longest value of a Redis server (`proto-max-bulk-len` as delivered)."""

MAX_HEADER_BYTES: Final = 4096

_VALUE: Final = struct.Struct("<4sIQ16s")
_MAGIC: Final = b"NRi1"
_ENTRY: Final = struct.Struct("<IQ16s")
_CRC: Final = struct.Struct("<I")
_CHARGE_DIGITS: Final = 12
_NUMBER_DIGITS: Final = 16
_DIGITS: Final = _CHARGE_DIGITS + _NUMBER_DIGITS
_BODY: Final = _DIGITS + _CRC.size

OVERHEAD_BYTES: Final = 1024
"""What an image is charged beside payload and twice its header: three keys and fields of about 160 bytes, both fixed
parts, a place in the log, and what a server keeps for a key and a field."""


def charge_of(header_bytes: int, payload_bytes: int) -> int:
    """Return how many bytes of capacity an image takes."""
    return payload_bytes + 2 * header_bytes + OVERHEAD_BYTES


def checksum(field: str, header: bytes, payload: memoryview | bytes) -> bytes:
    """Return 16 bytes of SHA-256 over name, header and payload: a value under another key is damaged, too.

    Measured on one core with SHA instructions: 1.6 GB/s; lets go of the GIL.
    """
    digest = hashlib.sha256(f"{field} {len(header)} ".encode())
    digest.update(header)
    digest.update(payload)
    return digest.digest()[:16]


@dataclass(frozen=True, slots=True)
class Image:
    """One image on its way to the server. `payload` is borrowed."""

    field: str
    header: bytes
    payload: memoryview
    checksum: bytes

    @property
    def charge(self) -> int:
        """Bytes of capacity it takes."""
        return charge_of(len(self.header), self.payload.nbytes)

    @property
    def num_value_bytes(self) -> int:
        """Length of its value."""
        return _VALUE.size + len(self.header) + self.payload.nbytes

    def value(self) -> bytes:
        """Return its value; copies the payload."""
        head = _VALUE.pack(_MAGIC, len(self.header), self.payload.nbytes, self.checksum)
        return b"".join((head, self.header, self.payload))

    def entry(self) -> bytes:
        """Return its entry in the index, with the number 0."""
        fixed = _ENTRY.pack(len(self.header), self.payload.nbytes, self.checksum)
        digits = f"{self.charge:0{_CHARGE_DIGITS}d}{0:0{_NUMBER_DIGITS}d}"
        return digits.encode() + _CRC.pack(zlib.crc32(fixed + self.header)) + fixed + self.header


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index says about an image.

    Attributes:
        charge: bytes of capacity it takes.
        number: of the change that stored it; later ones are larger.
        num_bytes: payload length.
        checksum: of name, header and payload.
        header: as given.
    """

    charge: int
    number: int
    num_bytes: int
    checksum: bytes
    header: bytes

    def record(self, key: ImageKey) -> ImageRecord:
        """Return what the core sees of it."""
        return ImageRecord(key=key, header=self.header, num_bytes=self.num_bytes)


def read_entry(packed: bytes) -> Entry | None:
    """Return an entry, None if the bytes are not one."""
    digits, crc, rest = packed[:_DIGITS], packed[_DIGITS:_BODY], packed[_BODY:]
    if len(rest) < _ENTRY.size or _CRC.pack(zlib.crc32(rest)) != crc or not digits.isdigit():
        return None
    header_bytes, num_bytes, found = _ENTRY.unpack_from(rest)
    header = rest[_ENTRY.size :]
    charge, number = int(digits[:_CHARGE_DIGITS]), int(digits[_CHARGE_DIGITS:])
    if len(header) != header_bytes or charge != charge_of(header_bytes, num_bytes):
        return None
    return Entry(charge, number, num_bytes, found, header)


def without_number(packed: bytes) -> bytes:
    """Return an entry with the number 0, as `Image.entry` gives it."""
    return packed[:_CHARGE_DIGITS] + b"0" * _NUMBER_DIGITS + packed[_DIGITS:]


def read_value(field: str, value: bytes) -> tuple[bytes, memoryview] | None:
    """Return header and payload of a value, None if it is damaged."""
    if len(value) < _VALUE.size:
        return None
    magic, header_bytes, num_bytes, found = _VALUE.unpack_from(value)
    start = _VALUE.size + header_bytes
    if magic != _MAGIC or len(value) != start + num_bytes:
        return None
    header, payload = value[_VALUE.size : start], memoryview(value)[start:]
    if checksum(field, header, payload) != found:
        return None
    return header, payload


def largest_value_bytes(payload_bytes: int) -> int:
    """Return the length of the longest value with a payload of this length."""
    return _VALUE.size + MAX_HEADER_BYTES + payload_bytes
