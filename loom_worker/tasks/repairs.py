"""Repairs of Celery: a result backend that never listens, and signals that are silent.

What a broker connection needs is repaired in ``transport.py``.
"""

from typing import Any

from celery.apps import worker as worker_app
from celery.backends.redis import RedisBackend


class NoWaitRedisBackend(RedisBackend):
    """Counts chords, but never listens: nobody in Loom's processes waits for a result.

    Each header of a chord that is published inside a worker would subscribe to its result and keep the subscription
    for ever (celery#6963, #3808): 1,200 chords left 495 channels on each of 8 connections. Chords still fire.
    """

    def add_pending_result(self, result: Any, weak: bool = False, start_drainer: bool = True) -> Any:
        """Do not wait for it."""
        return result

    def add_pending_results(self, results: Any, weak: bool = False) -> list[Any]:
        """Do not wait for them."""
        return list(results)

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """Do not subscribe."""

    def remove_pending_result(self, result: Any) -> Any:
        """There is nothing to remove."""
        return result


def keep_signals_silent() -> None:
    """Keep Celery from writing to standard output which signal it got: a line of plain text between those of the log.

    `loom up` logs how each process ends, and a process that stops hands over its turns in lines of their own.
    """
    worker_app.safe_say = _say_nothing


def _say_nothing(_text: str, _stream: object = None) -> None:
    """In place of Celery's own."""
