"""A repair of Celery: events that are sent a few times a second, with what this process reports of its work."""

from typing import Any

from celery import bootsteps
from celery.worker import state

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
        sending = _Sending(c.hub, dispatcher)
        c.on_task_message -= {each for each in c.on_task_message if isinstance(each, _Sending)}
        c.on_task_message.add(sending)
        sending()  # what has waited for the connection


class _Sending:
    """Sends every EVERY_S while the worker has tasks, and sleeps while it has none: a wake-up costs 0.3 ms."""

    def __init__(self, hub: Any, dispatcher: Any) -> None:
        self._hub = hub
        self._dispatcher = dispatcher
        self._is_due = False

    def __call__(self, _request: object = None) -> None:
        """Begin; Celery calls it in its loop's thread with every task that it has taken."""
        if not self._is_due:
            self._is_due = True
            self._hub.call_later(EVERY_S, self._send)

    def _send(self) -> None:
        self._is_due = False
        # Asked first: what a task reports is there before it counts as done, so nothing is left if none is there now.
        has_tasks = bool(state.reserved_requests)
        if self._dispatcher.enabled:
            worker.current().events.send(self._dispatcher)
            self._dispatcher.flush()
        if has_tasks:
            self()
