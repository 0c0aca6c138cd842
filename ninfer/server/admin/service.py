"""Tells how the server is. Knows nothing about HTTP."""

from typing import Final

from ninfer.obs.metrics import render_metrics
from ninfer.server.context import ServerContext

_SERVING: Final = frozenset({"ok", "degraded"})


class AdminService:
    """Health and metrics.

    Args:
        context: of the server.
    """

    def __init__(self, context: ServerContext) -> None:
        """Keep the context."""
        self._context = context

    def health(self) -> tuple[bool, dict[str, object]]:
        """Return whether requests are served, and the details."""
        report = self._context.engine.health()
        details: dict[str, object] = {
            "status": report.status,
            "problems": list(report.problems),
            "model": self._context.engine.model_info.name,
        }
        return report.status in _SERVING, details

    def metrics(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return render_metrics(self._context.metrics.registry)
