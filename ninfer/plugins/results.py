"""Checks of what hooks return. Knows nothing about how the hooks were called."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from ninfer.api import PluginConfig
from ninfer.config.tiers import DEVICE_TIER_NAME
from ninfer.plugins.record import Family, Hook, Offer, Phase, PluginProblem, PluginRecord
from ninfer.plugins.use import DECODER_AUTO, DECODER_OFF

_KIND: Final = re.compile(r"[a-z][a-z0-9_-]*")
_RESERVED: Final = {
    Family.TIER: (DEVICE_TIER_NAME,),
    Family.DECODER: (DECODER_OFF, DECODER_AUTO),
}
"""Words that the configuration uses where a kind may stand."""


def check_result(
    hook_name: str, hook: Hook, result: object
) -> tuple[list[Offer], list[PluginProblem]]:
    """Check what one implementation returned.

    Args:
        hook_name: for the messages.
        hook: what it should return.
        result: what it returned; iterated once, which may run code of the plugin.

    Returns:
        Good offers, and one problem per mistake.
    """
    if isinstance(result, str) or not isinstance(result, Iterable):
        message = (
            f"{hook_name} returned {_type_name(result)}, not a list of {hook.provider.__name__}"
        )
        return [], [PluginProblem(phase=Phase.RESULT, message=message)]
    offers: list[Offer] = []
    problems: list[PluginProblem] = []
    for item in result:
        if not isinstance(item, hook.provider):
            message = (
                f"{hook_name} returned {_type_name(item)} where {hook.provider.__name__} is wanted"
            )
            problems.append(PluginProblem(phase=Phase.RESULT, message=message))
            continue
        mistakes = list(_mistakes(hook.family, item))
        problems += [
            PluginProblem(phase=Phase.RESULT, message=f"{hook_name}, kind {item.kind!r}: {mistake}")
            for mistake in mistakes
        ]
        if not mistakes:
            offers.append(Offer(family=hook.family, provider=item))
    return offers, problems


def kind_mistake(family: Family, kind: object) -> str:
    """Return what is wrong with the name of a kind, empty if nothing.

    Args:
        family: what the kind is of.
        kind: what a provider or a person calls it.
    """
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        return "kind must be lower-case letters, digits, - and _, and begin with a letter"
    if kind in _RESERVED.get(family, ()):
        return f"kind has a meaning of its own in ninfer.toml for a {family}; choose another name"
    return ""


def mark_duplicate_kinds(records: Sequence[PluginRecord]) -> list[PluginRecord]:
    """Return the records, those that offer a kind which another one offers too as broken.

    Two offers of one kind by the same plugin are a mistake as well.
    """
    owners: dict[tuple[Family, str], list[str]] = {}
    for record in records:
        for offer in record.offers:
            owners.setdefault((offer.family, offer.kind), []).append(
                f"{record.name} ({record.origin})"
            )
    return [record.broken_by(*_duplicates(record, owners)) for record in records]


def _duplicates(
    record: PluginRecord, owners: dict[tuple[Family, str], list[str]]
) -> Iterator[PluginProblem]:
    for key in dict.fromkeys((offer.family, offer.kind) for offer in record.offers):
        if len(owners[key]) > 1:
            family, kind = key
            message = f"{family} kind {kind!r} is offered twice: by {' and by '.join(owners[key])}"
            yield PluginProblem(phase=Phase.RESULT, message=message)


def _mistakes(family: Family, provider: Any) -> Iterator[str]:  # noqa: ANN401 - its fields are what is checked
    if mistake := kind_mistake(family, provider.kind):
        yield mistake
    if not isinstance(provider.summary, str):
        yield f"summary is {_type_name(provider.summary)}, not a sentence"
    if not (isinstance(provider.config, type) and issubclass(provider.config, PluginConfig)):
        yield f"config is {_name(provider.config)}, not a subclass of ninfer.api.PluginConfig"
    if not _takes(provider.open, num_arguments=2):
        yield "open must take exactly (context, config)"
    if not _takes(provider.sample_config, num_arguments=1):
        yield "sample_config must take exactly (folder)"


def _takes(function: Callable[..., object] | object, *, num_arguments: int) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*[None] * num_arguments)
    except (TypeError, ValueError):
        return False
    return True


def _name(value: object) -> str:
    return value.__qualname__ if isinstance(value, type) else _type_name(value)


def _type_name(value: object) -> str:
    return f"a value of type {type(value).__qualname__}"
