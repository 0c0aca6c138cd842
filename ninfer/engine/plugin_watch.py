"""Sees which plugins fail, and calls that do not return. Decides nothing and calls no plugin."""

import threading
from collections.abc import Sequence
from typing import Final

import structlog

from ninfer.cache.tier_handle import TierHandle
from ninfer.core.plugin_guard import PluginGuard

_log = structlog.get_logger(__name__)

HANG_S: Final = 10.0
"""A call on the engine thread that takes longer hangs: no request is served until it returns."""
_LOOK_EVERY_S: Final = 1.0


class PluginWatch:
    """Reads guards and tier handles from any thread.

    Args:
        guards: of everything that is called on the engine thread.
        handles: tiers below the device.
    """

    def __init__(
        self, guards: Sequence[PluginGuard] = (), handles: Sequence[TierHandle] = ()
    ) -> None:
        """Watch; the thread that tells of calls that hang is not started yet."""
        self._guards = tuple(guards)
        self._handles = tuple(handles)
        self._told: set[int] = set()
        self._is_over = threading.Event()

    def problems(self) -> list[tuple[str, str]]:
        """Return (name of the plugin, sentence) for everything that is wrong now."""
        found = [
            (handle.identity.plugin, problem)
            for handle in self._handles
            for problem in handle.problems()
        ]
        in_handles = {id(handle.guard) for handle in self._handles}
        found += [
            (guard.identity.plugin, guard.problem)
            for guard in self._guards
            if guard.problem and id(guard) not in in_handles
        ]
        return found

    def hang(self) -> tuple[str, str] | None:
        """Return (name of the plugin, sentence) for the call that does not return, if there is one."""
        for guard in self._guards:
            busy_s = guard.busy_s()
            if busy_s > HANG_S:
                text = (
                    f"{guard.identity.text} hangs: {guard.operation} has not returned for "
                    f"{busy_s:.0f} s, and nothing is served until it does"
                )
                return guard.identity.plugin, text
        return None

    def start(self) -> None:
        """Start a thread that writes a log line when a call hangs."""
        threading.Thread(target=self._run, name="ninfer-plugin-watch", daemon=True).start()

    def stop(self) -> None:
        """End that thread."""
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Write one log line per call that hangs."""
        for guard in self._guards:
            if guard.busy_s() <= HANG_S:
                self._told.discard(id(guard))
            elif id(guard) not in self._told:
                self._told.add(id(guard))
                identity = guard.identity
                _log.error(
                    "plugin_hangs",
                    family=identity.family,
                    name=identity.name,
                    plugin=identity.plugin,
                    distribution=identity.distribution,
                    operation=guard.operation,
                    seconds=round(guard.busy_s(), 1),
                )
