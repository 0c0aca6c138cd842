"""Entry points of the group `ninfer`, one record each. Imports nothing of any plugin."""

import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Final

from ninfer.plugins.record import Phase, PluginProblem, PluginRecord

GROUP: Final = "ninfer"
"""Entry-point group of all plugins, built-in ones included."""


def find_entry_points(path: Sequence[str] | None = None) -> list[PluginRecord]:
    """List installed plugins in the order of their names, duplicates of a name marked as broken.

    Args:
        path: folders to search; None searches `sys.path`.

    Returns:
        One record per entry point. Reads metadata files, imports nothing, never raises because of a plugin.
    """
    records = sorted(_records(path), key=lambda record: (record.name, record.distribution))
    return [_checked(record, records) for record in records]


def _records(path: Sequence[str] | None) -> Iterator[PluginRecord]:
    seen: set[str] = set()
    found = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    for distribution in found:
        name = str(distribution.metadata["Name"] or "unknown distribution")
        normal = re.sub(r"[-_.]+", "-", name).lower()
        if normal in seen:
            continue  # as on import, the first folder of the path wins
        seen.add(normal)
        yield from _plugins_of(distribution, name)


def _plugins_of(distribution: metadata.Distribution, name: str) -> Iterator[PluginRecord]:
    version = str(distribution.metadata["Version"] or "")
    try:
        found = [point for point in distribution.entry_points if point.group == GROUP]
    except Exception as error:  # noqa: BLE001 - a damaged file of one distribution must not hide the others
        text = distribution.read_text("entry_points.txt") or ""
        if f"[{GROUP}]" in text.replace(" ", ""):
            message = f"entry_points.txt cannot be read: {type(error).__name__}: {error}"
            record = PluginRecord(name=name, distribution=name, version=version, entry_point="?")
            yield record.broken_by(PluginProblem(phase=Phase.DISCOVER, message=message))
        return
    for point in found:
        yield PluginRecord(
            name=point.name, distribution=name, version=version, entry_point=point.value
        )


def _checked(record: PluginRecord, records: Sequence[PluginRecord]) -> PluginRecord:
    same = [other.origin for other in records if other.name == record.name]
    if len(same) < 2:
        return record
    message = f"two distributions have a plugin of this name: {' and '.join(same)}; uninstall one"
    return record.broken_by(PluginProblem(phase=Phase.DISCOVER, message=message))
