"""A repair of Celery: events that are sent a few times a second, with what this process reports of its work."""

from typing import Any

from celery import bootsteps

from loom_worker.tasks import worker
from loom_worker.tasks.task_events import MOST

EVERY_S = 0.25
"""Flower sees a task so much later at the most."""


class CalmEvents(bootsteps.StartStopStep):
    """Sends task events, and what this process reports as such, a few times a second from the worker's loop.

    Flower is the only one who reads them. By default each event of a busy worker becomes a message of its own: 22 % of
    the worker's time went into sending them, and Flower's and Valkey's on top (measured at 140 turns/s). The step runs
    after Celery's own step for events, so also after every new connection to the broker.
    """

    requires = ("celery.worker.consumer.events:Events",)

    def start(self, c: Any) -> None:
        """Take the new dispatcher's flushing over.

        Args:
            c: the consumer; its name is Celery's.
        """
        dispatcher = c.event_dispatcher
        if c.hub is None or dispatcher is None:
            return
        dispatcher.on_send_buffered = None
        dispatcher.buffer_limit = 2 * MOST  # with more than 24, Celery's own limit, it sends before all are there
        c.hub.call_repeatedly(EVERY_S, _flush, dispatcher)


def _flush(dispatcher: Any) -> None:
    if dispatcher.enabled:
        worker.current().events.send(dispatcher)
        dispatcher.flush()
