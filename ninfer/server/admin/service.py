"""Tells how the server is. Knows nothing about HTTP."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ninfer.obs.metrics import render_metrics
from ninfer.server.context import ServerContext

_SERVING: Final = frozenset({"ok", "degraded"})


class AdminService:
    """Health, plugins and metrics.

    Args:
        context: of the server.
        plugins: the installed plugins, as they were found at start.
    """

    def __init__(self, context: ServerContext, plugins: Sequence[Mapping[str, Any]] = ()) -> None:
        """Keep the context."""
        self._context = context
        self._plugins = plugins

    def health(self) -> tuple[bool, dict[str, object]]:
        """Return whether requests are served, and the details."""
        report = self._context.engine.health()
        details: dict[str, object] = {
            "status": report.status,
            "problems": list(report.problems),
            "model": self._context.engine.model_info.name,
        }
        return report.status in _SERVING, details

    def plugins(self) -> list[dict[str, Any]]:
        """Return the installed plugins; those that fail while they are used are "degraded" and say why."""
        failing = self._context.engine.health().plugins
        return [
            {
                **plugin,
                "state": "degraded" if plugin["name"] in failing else plugin["state"],
                "failures": list(failing.get(plugin["name"], ())),
            }
            for plugin in self._plugins
        ]

    def metrics(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return render_metrics(self._context.metrics.registry)
