"""Sentences about wrong settings. Knows nothing about how they were read."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

SECRET_KEYS = frozenset({"server.api_keys"})
"""Settings whose values are never shown."""


def key_text(location: Sequence[str | int]) -> str:
    """Return a place in the settings as people write it: `cache.tiers[1].capacity`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def describe(
    error: ValidationError, tree: Mapping[str, Any], sources: Mapping[str, str]
) -> list[str]:
    """Return one line per mistake: source, setting, value and what is wanted.

    Args:
        error: what the settings models complain about.
        tree: what they were given.
        sources: origin of values, by setting.
    """
    return [_line(item, sources) for item in mistakes(error, tree)]


def mistakes(error: ValidationError, tree: Mapping[str, Any]) -> list[ErrorDetails]:
    """Return one entry per place. Where a value may be of several types, their messages are joined.

    Args:
        error: what a model complains about.
        tree: what it was given.
    """
    by_place: dict[tuple[str | int, ...], ErrorDetails] = {}
    for item in error.errors(include_url=False):
        place = _place(item["loc"], tree)
        before = by_place.get(place)
        message = item["msg"] if before is None else f"{before['msg']}, or: {item['msg']}"
        by_place[place] = {**item, "loc": place, "msg": message}
    return list(by_place.values())


def describe_item(item: ErrorDetails, *, prefix: str) -> str:
    """Return one mistake as `place = value: what is wanted`.

    Args:
        item: one entry of `ValidationError.errors()`.
        prefix: where the model stands in the settings, for example `cache.tiers[1]`.
    """
    relative = key_text(item["loc"])
    place = f"{prefix}.{relative}" if prefix and relative else prefix or relative
    message = item["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if item["type"] == "missing":
        return f"{place}: is missing"
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key"
    shown = "" if repr(item["input"]) in message else _shown(place, item)
    return f"{place}{shown}: {message}"


def _line(item: ErrorDetails, sources: Mapping[str, str]) -> str:
    key = key_text(item["loc"])
    while key and key not in sources:
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return f"{sources.get(key, 'default')}: {describe_item(item, prefix='')}"


def _place(location: Sequence[str | int], tree: object) -> tuple[str | int, ...]:
    """Drop the names of types that pydantic appends to a place when a value may be of several types."""
    place: list[str | int] = []
    for part in location:
        if isinstance(tree, Mapping):
            tree = tree.get(part)
        elif isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree):
            tree = tree[part]
        else:
            break
        place.append(part)
    return tuple(place)


def _shown(place: str, item: ErrorDetails) -> str:
    value: Any = item["input"]
    if any(place.startswith(secret) for secret in SECRET_KEYS):
        return ""
    if isinstance(value, Mapping | list | tuple) and len(repr(value)) > 60:
        return ""
    return f" = {value!r}"
