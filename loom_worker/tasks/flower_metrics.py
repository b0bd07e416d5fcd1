"""Flower's figures behind its password: it gives /metrics, with the names of workers and tasks, to anybody who asks."""

from flower.views.monitor import Metrics
from tornado.web import authenticated


class GuardedMetrics(Metrics):
    """``/metrics`` for those who are let in; 401 for others."""

    @authenticated
    async def get(self) -> None:
        """The figures, in Prometheus' text format."""
        await super().get()


HANDLERS = [("/metrics", GuardedMetrics)]
"""What takes the place of Flower's own. ``/healthcheck`` stays open: it says OK, nothing else, and probes have no
password."""
