"""Quantities with units, as people write them: "8GiB", "250ms". Knows nothing about settings."""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer

BYTE_UNITS: Final[Mapping[str, int]] = {
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
"""Bytes per unit of information. Decimal units are refused because people mean both things by them."""

DURATION_UNITS: Final[Mapping[str, float]] = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
"""Seconds per unit of time."""

_QUANTITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(value: object) -> int:
    """Read a number of bytes.

    Args:
        value: an integer (bytes) or text such as "8GiB"; text without a unit means bytes.

    Returns:
        Bytes, rounded down to a whole number.

    Raises:
        ValueError: not a quantity, negative, or of an unknown unit; the text names the allowed units.
    """
    if isinstance(value, str):
        return int(_parse(value, BYTE_UNITS, default_unit="B"))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(_complaint(value, BYTE_UNITS, meaning="bytes"))


def parse_duration_s(value: object) -> float:
    """Read a length of time.

    Args:
        value: a number (seconds) or text such as "250ms" or "5m"; text without a unit means seconds.

    Returns:
        Seconds.

    Raises:
        ValueError: not a quantity, negative, or of an unknown unit; the text names the allowed units.
    """
    if isinstance(value, str):
        return _parse(value, DURATION_UNITS, default_unit="s")
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    raise ValueError(_complaint(value, DURATION_UNITS, meaning="seconds"))


def format_bytes(num_bytes: int) -> str:
    """Return bytes in the largest unit that divides them, so that `parse_bytes` gives the same number back."""
    for unit, factor in reversed(tuple(BYTE_UNITS.items())):
        if num_bytes >= factor and num_bytes % factor == 0:
            return f"{num_bytes // factor}{unit}"
    return f"{num_bytes}B"


def format_duration(seconds: float) -> str:
    """Return seconds as text that `parse_duration_s` reads back."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    return f"{seconds:g}s"


def reject_bool(value: object) -> object:
    """Refuse true and false where a number is meant; pydantic would read them as 1 and 0.

    Raises:
        ValueError: the value is a boolean.
    """
    if isinstance(value, bool):
        msg = "must be a number, not true or false"
        raise ValueError(msg)  # noqa: TRY004 - pydantic collects ValueError only
    return value


def _parse(text: str, units: Mapping[str, float], *, default_unit: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = (match[2] or default_unit) if match else ""
    if match is None or unit not in units:
        raise ValueError(
            _complaint(text, units, meaning="bytes" if units is BYTE_UNITS else "seconds")
        )
    return float(match[1]) * units[unit] if "." in match[1] else int(match[1]) * units[unit]


def _complaint(value: object, units: Mapping[str, float], *, meaning: str) -> str:
    allowed = ", ".join(units)
    return f"{value!r} is not a quantity; write a number of {meaning} or a number with one of {allowed}"


ByteSize = Annotated[
    int,
    BeforeValidator(parse_bytes),
    PlainSerializer(format_bytes, when_used="json", return_type=str),
]
"""Field type: bytes as an int, read from "8GiB"."""

Duration = Annotated[
    float,
    BeforeValidator(parse_duration_s),
    PlainSerializer(format_duration, when_used="json", return_type=str),
]
"""Field type: seconds as a float, read from "250ms"."""

Count = Annotated[int, BeforeValidator(reject_bool), Field(ge=0)]
"""Field type: a whole number, zero allowed."""

PositiveCount = Annotated[int, BeforeValidator(reject_bool), Field(ge=1)]
"""Field type: a whole number of at least one."""
