"""How much KV the device holds: tokens, bytes, or whatever fits. Knows nothing about pages."""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer
from typing_extensions import override

from ninfer.config.quantities import BYTE_UNITS, format_bytes, parse_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """A wish for KV on the device. At most one of the two numbers is set; none means "auto".

    Attributes:
        num_tokens: tokens of KV, or None.
        num_bytes: bytes of KV over all layers and pools, or None.
    """

    num_tokens: int | None = None
    num_bytes: int | None = None

    @property
    def is_auto(self) -> bool:
        """True if the engine shall take what fits."""
        return self.num_tokens is None and self.num_bytes is None

    @override
    def __str__(self) -> str:
        """Return the text that `parse_kv_capacity` reads back."""
        if self.num_bytes is not None:
            return format_bytes(self.num_bytes)
        return "auto" if self.num_tokens is None else str(self.num_tokens)


AUTO: Final = KvCapacity()


def parse_kv_capacity(value: object) -> KvCapacity:
    """Read "auto", a number of tokens, or a quantity of bytes such as "8GiB".

    Raises:
        ValueError: none of the three; the text says what is allowed.
    """
    if isinstance(value, KvCapacity):
        return value
    if value == "auto":
        return AUTO
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return KvCapacity(num_tokens=value)
    if isinstance(value, str) and value.strip().isdecimal() and int(value) > 0:
        return KvCapacity(num_tokens=int(value))
    try:
        num_bytes = parse_bytes(value) if isinstance(value, str) else 0
    except ValueError:
        num_bytes = 0
    if num_bytes > 0:
        return KvCapacity(num_bytes=num_bytes)
    allowed = ", ".join(BYTE_UNITS)
    msg = f'{value!r} is not a KV capacity; write "auto", a number of tokens, or a quantity with one of {allowed}'
    raise ValueError(msg)


def _to_plain(value: KvCapacity) -> str | int:
    return str(value) if value.num_tokens is None else value.num_tokens


KvCapacityField = Annotated[
    KvCapacity, BeforeValidator(parse_kv_capacity), PlainSerializer(_to_plain, when_used="json")
]
"""Field type of `engine.kv_capacity`."""
