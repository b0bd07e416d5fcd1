"""Wake-ups: Celery messages that say "this lane has work", made from a template that Celery filled in once.

A thread that is free reads the lane out of ``argsrepr`` (``lanes/common.lua``).

Sending one through kombu cost 0.9 ms of processor time, a quarter of what accepting a turn costs; filling the lane and
the id into the template takes 0.1 ms (measured).
"""

import base64
import json
import uuid
from collections.abc import Callable
from typing import Any

from celery import Celery
from kombu.connection import Connection

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.lanes import keys

TASK = "loom.turn.run"
LANE, ID = "0-lane-0", "0-id-0"
"""What stands in the form until a wake-up is sent."""


class WakeupQueue:
    """Sends the wake-ups of lanes, on one Redis."""

    def __init__(self, app: Celery, redis: Any, *, new_id: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        """Args: redis: a redis-py client; new_id: never gives the same twice."""
        message = _form(app)
        self._body = base64.b64decode(message["body"]).decode()
        self._form = json.dumps({**message, "body": "%"})
        self._redis = redis
        self._new_id = new_id

    def message(self, lane: str) -> str:
        """A lane's wake-up as it lies in the queue.

        Args:
            lane: a session's internal key, which is hexadecimal.
        """
        body = base64.b64encode(self._body.replace(LANE, lane).encode()).decode()
        form = self._form.replace(LANE, lane).replace(ID, self._new_id())
        return form.replace('"body": "%"', f'"body": "{body}"', 1)

    def wake(self, lane: str) -> None:
        """Put a lane's wake-up behind all that wait; Unavailable: Redis did not answer; the sweep will send it."""
        with translate_redis_errors():
            self._redis.lpush(keys.WAKEUPS, self.message(lane))


def _form(app: Celery) -> dict[str, Any]:
    with Connection("memory://") as nowhere:  # type: ignore[no-untyped-call]  # kombu has no annotations
        app.send_task(TASK, args=(LANE,), ignore_result=True, retry=False, task_id=ID, connection=nowhere)
        message: dict[str, Any] = nowhere.default_channel.queues["turn"].get_nowait()
    message["properties"]["delivery_tag"] = ID
    return message
