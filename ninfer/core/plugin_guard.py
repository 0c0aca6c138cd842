"""Calls a plugin on the engine thread so that its faults cost its own usefulness only.

A call cannot be interrupted. What can be done: an exception or a wrong answer is replaced, a slow call is counted, and
a plugin that keeps failing is put aside for good. A call that never returns is seen from outside: `busy_s`.
"""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from typing_extensions import TypeVarTuple, Unpack

from ninfer.api import Clock
from ninfer.core.plugin_identity import PluginIdentity

_log = structlog.get_logger(__name__)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_FAULTS: Final = 3.0
"""Faults of one method after which a plugin is put aside."""
FORGIVENESS: Final = 1 / 64
"""Faults of a method forgiven per good call of it: what fails less often than one call in 64 is never put aside."""
CLOSE_DEADLINE_S: Final = 10.0
"""Time that a plugin has to save and release what it holds when the engine stops."""
_LOG_EVERY_S: Final = 10.0
"""A plugin that fails again and again writes one line in so many seconds."""


class WrongAnswer(Exception):
    """A plugin returned something that the contract does not allow. Text: what it was."""


class PluginGuard:
    """All calls of one plugin object on the engine thread.

    Args:
        identity: whose object it is.
        clock: source of time.
        budget_s: a call that takes longer is a fault.
        instead: what is done without the plugin, for people, for example "the policy lru decides".

    Attributes:
        identity: the same.
        problem: what is wrong, empty if nothing was for a while.
        is_aside: the plugin is not asked any more.
        on_aside: called once, on the engine thread, when it is put aside.

    Used on the engine thread; `busy_s`, `problem` and `is_aside` may be read from any thread.
    """

    def __init__(
        self,
        identity: PluginIdentity,
        clock: Clock,
        *,
        budget_s: float,
        instead: str,
    ) -> None:
        """Start without faults."""
        self.identity = identity
        self.problem = ""
        self.is_aside = False
        self.on_aside: Callable[[], None] = lambda: None
        self.operation = ""
        self._now_s = clock.monotonic_s
        self._budget_s = budget_s
        self._instead = instead
        self._faults: dict[str, float] = {}
        self._busy_since_s = 0.0
        self._last_log_s = -_LOG_EVERY_S

    def ask(
        self,
        operation: str,
        call: Callable[[Unpack[Ts]], T],
        otherwise: Callable[[Unpack[Ts]], T],
        *arguments: *Ts,
    ) -> T:
        """Call the plugin; if that fails, or if it was put aside, call something else with the same arguments.

        Args:
            operation: name of the method, for reports.
            call: asks the plugin and raises if the answer is wrong.
            otherwise: answers instead.
            arguments: for either.

        Returns:
            What the call or the replacement returned. A slow answer is used all the same.
        """
        if self.is_aside:
            return otherwise(*arguments)
        self.operation = operation
        started_s = self._busy_since_s = self._now_s()
        try:
            answer = call(*arguments)
        except BaseException as error:
            self._busy_since_s = 0.0
            if is_interrupt(error):
                raise
            self.fault(operation, describe(error))
            return otherwise(*arguments)
        self._busy_since_s = 0.0
        seconds = self._now_s() - started_s
        if seconds > self._budget_s:
            self.fault(operation, f"took {seconds:.3g} s; a call may take {self._budget_s:g} s")
        elif self._faults:
            self._forgive(operation)
        return answer

    def fault(self, operation: str, problem: str) -> None:
        """Count a fault and say so; the one that is too many puts the plugin aside."""
        if self.is_aside:
            return
        self._faults[operation] = self._faults.get(operation, 0.0) + 1.0
        self.is_aside = self._faults[operation] >= MAX_FAULTS
        self.problem = f"{self.identity.text} failed: {operation}: {problem}"
        if self.is_aside:
            self.problem += f"; it is not asked any more, {self._instead}"
        self._tell(operation, problem)
        if self.is_aside:
            self.on_aside()

    def _tell(self, operation: str, problem: str) -> None:
        now_s = self._now_s()
        if not self.is_aside and now_s - self._last_log_s < _LOG_EVERY_S:
            return
        self._last_log_s = now_s
        identity = self.identity
        _log.error(
            "plugin_put_aside" if self.is_aside else "plugin_failed",
            family=identity.family,
            name=identity.name,
            plugin=identity.plugin,
            distribution=identity.distribution,
            operation=operation,
            problem=problem,
            instead=self._instead,
        )

    def _forgive(self, operation: str) -> None:
        left = self._faults.pop(operation, 0.0) - FORGIVENESS
        if left > 0.0:
            self._faults[operation] = left
        if not self._faults:
            self.problem = ""

    def close(self, call: Callable[[], None]) -> None:
        """Close the plugin's object, put aside or not; waits for `CLOSE_DEADLINE_S` at most."""

        def run() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - as in `ask`
                self._tell("close", describe(error))

        thread = threading.Thread(
            target=run, name=f"ninfer-close-{self.identity.name}", daemon=True
        )
        thread.start()
        thread.join(CLOSE_DEADLINE_S)
        if thread.is_alive():
            self._tell("close", f"has not returned after {CLOSE_DEADLINE_S:g} s")

    def busy_s(self) -> float:
        """Return for how many seconds the present call has been running, 0.0 if none is."""
        since_s = self._busy_since_s
        return self._now_s() - since_s if since_s else 0.0


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an exception is the user's Ctrl-C; anything else that a plugin raises is a fault of its own.

    Not every exception is an Exception: cancelled tasks and panics of native code are not.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and is_main


def describe(error: BaseException) -> str:
    """Return one line about an exception of a plugin."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the text is the plugin's too
        text = "its text cannot be made"
    if isinstance(error, WrongAnswer):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
