"""Examines every installed plugin and never raises because of one. A record is made whatever happens.

Order per plugin: block-list, import, contract version, hook implementations, registration, results; then, over
all plugins, duplicate kinds.
"""

import importlib
import traceback
from collections.abc import Collection, Sequence
from dataclasses import replace
from types import ModuleType

import pluggy

from ninfer.api import API_VERSION, hookspecs, is_compatible
from ninfer.api.markers import PROJECT
from ninfer.core.plugin_guard import describe, is_interrupt
from ninfer.plugins.entry_points import find_entry_points
from ninfer.plugins.implementations import check_implementations
from ninfer.plugins.record import HOOKS, Offer, Phase, PluginProblem, PluginRecord, PluginState
from ninfer.plugins.results import check_result, mark_duplicate_kinds


def discover(
    disabled: Collection[str] = (), *, path: Sequence[str] | None = None
) -> tuple[PluginRecord, ...]:
    """Import and check all installed plugins.

    Args:
        disabled: names of plugins that are not imported.
        path: folders to search for distributions; None searches `sys.path`.

    Returns:
        One record per entry point, in the order of names. Runs code of plugins: their import and their hooks.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    records = []
    for record in find_entry_points(path):
        if record.name in disabled:
            records.append(replace(record, state=PluginState.DISABLED, problems=()))
        elif record.is_broken:
            records.append(record)
        else:
            records.append(_examine(manager, record))
    return tuple(mark_duplicate_kinds(records))


def _examine(manager: pluggy.PluginManager, record: PluginRecord) -> PluginRecord:
    try:
        module: object = importlib.import_module(record.entry_point)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return record.broken_by(_from_exception(Phase.IMPORT, error, hint=_import_hint(record)))
    if not isinstance(module, ModuleType):
        message = f"{record.entry_point} put a {type(module).__qualname__} in its own place"
        return record.broken_by(PluginProblem(phase=Phase.IMPORT, message=message))
    api, problem = _read_api(module)
    record = replace(record, api=api)
    if problem:
        return record.broken_by(PluginProblem(phase=Phase.API, message=problem))
    problems = check_implementations(manager, module) or _register(manager, record, module)
    if problems:
        return record.broken_by(*problems)
    offers, problems = _call_hooks(manager, module)
    return replace(record, offers=tuple(offers)).broken_by(*problems)


def _import_hint(record: PluginRecord) -> str:
    if ":" not in record.entry_point:
        return ""
    return f"; the entry point names an object, write {record.entry_point.partition(':')[0]!r}"


def _read_api(module: ModuleType) -> tuple[tuple[int, int] | None, str]:
    """Return the contract version of a plugin and what is wrong with it, empty if nothing."""
    ours = f"this ninfer offers {API_VERSION[0]}.{API_VERSION[1]}"
    match vars(module).get("NINFER_API"):
        case (int(major), int(minor)):
            if is_compatible((major, minor)):
                return (major, minor), ""
            reason = "another major version" if major != API_VERSION[0] else "a newer version"
            return (major, minor), f"built against API {major}.{minor}, {reason}; {ours}"
        case None:
            return None, f"{module.__name__} does not declare NINFER_API = (major, minor); {ours}"
        case other:
            return None, f"NINFER_API is {other!r}, not a pair (major, minor) of integers; {ours}"


def _register(
    manager: pluggy.PluginManager, record: PluginRecord, module: ModuleType
) -> list[PluginProblem]:
    try:
        manager.register(module, name=record.name)
        manager.check_pending()
    except Exception as error:  # noqa: BLE001 - pluggy reads every attribute of the module
        if manager.is_registered(module):
            manager.unregister(module)
        return [_from_exception(Phase.REGISTER, error)]
    return []


def _call_hooks(
    manager: pluggy.PluginManager, module: ModuleType
) -> tuple[list[Offer], list[PluginProblem]]:
    """Call each implementation of one plugin by itself, so that a result is known to be its own."""
    offers: list[Offer] = []
    problems: list[PluginProblem] = []
    for caller in manager.get_hookcallers(module) or []:
        for implementation in caller.get_hookimpls():
            if implementation.plugin is not module:
                continue
            try:
                good, bad = check_result(caller.name, HOOKS[caller.name], implementation.function())
            except BaseException as error:
                if is_interrupt(error):
                    raise
                good, bad = (
                    [],
                    [_from_exception(Phase.RESULT, error, where=f"{caller.name} raised ")],
                )
            offers += good
            problems += bad
    return offers, problems


def _from_exception(
    phase: Phase, error: BaseException, *, where: str = "", hint: str = ""
) -> PluginProblem:
    return PluginProblem(
        phase=phase,
        message=f"{where}{describe(error)}{hint}",
        traceback="".join(traceback.format_exception(error)),
    )
