"""News of runs: their events are read from the database, and readers are told that there are more."""

from typing import Any

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.values.runs import Run


class RunNews:
    """Publishes on the channels of turns: ids of runs are no ids of turns."""

    def __init__(self, redis: Any) -> None:
        """Args: redis: a redis-py client."""
        self._redis = redis

    def changed(self, run: Run) -> None:
        """The event log of a run has grown; who misses it looks once a second.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            self._redis.publish(f"loom:news:{run.id}", run.events)
            if run.is_finished:
                self._redis.publish("loom:ended", run.id)
