"""Renders plugin records as text and as data. Prints nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ninfer.plugins.record import Offer, PluginProblem, PluginRecord, PluginState
from ninfer.plugins.use import Use

HEADERS: Final = ("NAME", "DISTRIBUTION", "API", "STATE", "PROVIDES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A broken plugin that stops the start.

    Attributes:
        record: the plugin.
        uses: places of the configuration that want it; empty if it stops the start only because of `strict`.
    """

    record: PluginRecord
    uses: tuple[Use, ...]


def stop_report(culprits: Sequence[Culprit], other_problems: Sequence[str] = ()) -> str:
    """Return the one report of all plugins that stop the start, without a line break at its end.

    Args:
        culprits: at least one.
        other_problems: mistakes of the configuration that have nothing to do with them.
    """
    lines = [
        f"cannot start, {_count([culprit for culprit in culprits if culprit.uses], culprits)} broken"
    ]
    for culprit in culprits:
        lines += _culprit_lines(culprit)
    if other_problems:
        lines += ["also, settings are wrong", *(f"  {problem}" for problem in other_problems)]
    return "\n".join(lines)


def warning_line(record: PluginRecord) -> str:
    """Return one line about a broken plugin that nothing uses."""
    return (
        f"plugin {record.name} ({record.origin}) is broken and not used: "
        f"{_short(record.problems)}; see: ninfer plugins show {record.name}"
    )


def state_of(record: PluginRecord, uses: Iterable[Use]) -> str:
    """Return "active", "unused", "broken" or "disabled"."""
    if record.state is not PluginState.LOADED:
        return record.state.value
    is_used = any(use.is_of(offer) for use in uses for offer in record.offers)
    return "active" if is_used else "unused"


def rows(records: Iterable[PluginRecord], uses: Sequence[Use]) -> list[tuple[str, ...]]:
    """Return the table of `ninfer plugins`, one row per plugin, in the order of `HEADERS`."""
    return [
        (
            record.name,
            record.origin,
            ".".join(str(part) for part in record.api) if record.api else "-",
            state_of(record, uses),
            _short(record.problems) if record.is_broken else _provides(record.offers, uses),
        )
        for record in records
    ]


def to_data(records: Iterable[PluginRecord], uses: Sequence[Use]) -> list[dict[str, Any]]:
    """Return plugins as plain data for JSON; `used_by` says where the configuration names a kind."""
    return [
        {
            "name": record.name,
            "distribution": record.distribution,
            "version": record.version,
            "entry_point": record.entry_point,
            "api": list(record.api) if record.api else None,
            "state": state_of(record, uses),
            "provides": [
                {
                    "family": offer.family.value,
                    "kind": offer.kind,
                    "summary": offer.provider.summary,
                    "used_by": [use.where for use in uses if use.is_of(offer)],
                }
                for offer in record.offers
            ],
            "problems": [
                {
                    "phase": problem.phase.value,
                    "message": problem.message,
                    "location": problem.location,
                }
                for problem in record.problems
            ],
        }
        for record in records
    ]


def rows_of_data(plugins: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the same table from what `to_data` gave, for example in another process."""
    return [
        (
            plugin["name"],
            f"{plugin['distribution']} {plugin['version']}".rstrip(),
            ".".join(str(part) for part in plugin["api"]) if plugin["api"] else "-",
            plugin["state"],
            "; ".join(f"{problem['phase']}: {problem['message']}" for problem in plugin["problems"])
            or ", ".join(f"{offer['family']}:{offer['kind']}" for offer in plugin["provides"]),
        )
        for plugin in plugins
    ]


def problem_lines(problem: PluginProblem) -> list[str]:
    """Return phase, error and, where known, the place of one problem."""
    lines = [f"    phase    {problem.phase}", f"    error    {problem.message}"]
    return [*lines, f"    at       {problem.location}"] if problem.location else lines


def _count(configured: Sequence[Culprit], all_of_them: Sequence[Culprit]) -> str:
    word = "configured plugin" if len(configured) == len(all_of_them) else "plugin"
    return f"1 {word} is" if len(all_of_them) == 1 else f"{len(all_of_them)} {word}s are"


def _culprit_lines(culprit: Culprit) -> list[str]:
    record = culprit.record
    lines = [f"  {record.name}   {record.origin}   (ninfer: {record.name} = {record.entry_point})"]
    for problem in record.problems:
        lines += problem_lines(problem)
    lines += [f"    used by  {use.where}" for use in culprit.uses]
    if not culprit.uses:
        lines.append("    used by  nothing, but [plugins] strict = true")
    has_traceback = any(problem.traceback for problem in record.problems)
    lines.append(
        f"    try      ninfer plugins show {record.name}{' --traceback' if has_traceback else ''}"
    )
    lines.append(f'    or       [plugins] disabled = ["{record.name}"]')
    return lines


def _short(problems: Sequence[PluginProblem]) -> str:
    if not problems:
        return ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0].phase}: {problems[0].message}{more}"


def _provides(offers: Sequence[Offer], uses: Sequence[Use]) -> str:
    texts = []
    for offer in offers:
        instances = [use.instance for use in uses if use.is_of(offer) and use.instance]
        texts.append(f"{offer.label} ({', '.join(instances)})" if instances else offer.label)
    return ", ".join(texts)
