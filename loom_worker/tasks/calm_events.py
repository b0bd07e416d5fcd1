"""Celery's task events, sent a few times a second instead of with every turn of the worker's loop.

Flower is the only one who reads them. By default each event of a busy worker becomes a message of its own: 22 % of the
worker's time went into sending them, and Flower's and Valkey's on top (measured at 140 turns/s).
"""

from typing import Any

from celery import bootsteps

EVERY_S = 0.25
"""Flower sees a task so much later at the most."""

MOST = 5_000
"""Events that may wait; with more than 24, Celery's own limit, a pool thread would send in the loop's place."""


class CalmEvents(bootsteps.StartStopStep):
    """Runs after the events' own step, so also after every new connection to the broker."""

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
        dispatcher.buffer_limit = MOST
        c.hub.call_repeatedly(EVERY_S, _flush, dispatcher)


def _flush(dispatcher: Any) -> None:
    if dispatcher.enabled:
        dispatcher.flush()
