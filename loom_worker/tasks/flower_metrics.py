"""Flower's ``/metrics`` behind its password: as it comes, it answers everybody, and names tasks, workers and hosts."""

from flower.views import monitor
from tornado.web import authenticated


class Metrics(monitor.Metrics):
    """What Flower counts, in the text format of Prometheus, for those who may see its pages."""

    @authenticated
    async def get(self) -> None:
        """Answer 401 without the password."""
        await super().get()
