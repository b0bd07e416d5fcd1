"""Sending: wake-ups, tool calls and deliveries, by ids alone; a message is under a kilobyte.

A wake-up says "this lane has work". It is made from a template that Celery filled in once: sending one through kombu
costs 0.9 ms of processor time, a quarter of what accepting a turn costs; filling the lane and the id into the template
takes 0.1 ms (measured). A thread that is free reads the lane out of ``argsrepr`` (``lanes/common.lua``).
"""

import base64
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from celery import Celery, chord, signature
from celery.signals import after_task_publish
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from loom_worker.core import crash_points, log_context
from loom_worker.core.child_process import shimmed
from loom_worker.core.dispatcher import Dispatcher
from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.values.calls import Call
from loom_worker.core.values.judges import Verdict
from loom_worker.lanes import keys

log = logging.getLogger(__name__)

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


class CeleryDispatcher(Dispatcher):
    """Sends to other processes through Celery. What cannot be sent is logged and left to the sweep."""

    isolated_command = (sys.executable, "-m", "loom_worker.runtime.isolated")
    """The program of a process that runs one turn."""

    def __init__(self, app: Celery, wakeups: WakeupQueue, secrets: Mapping[str, str] | None = None) -> None:
        """Args: secrets: variables for a process that runs one turn; they are in nobody's environment any more."""
        self._app = app
        self._wakeups = wakeups
        self._secrets = json.dumps(dict(secrets or {}))

    def wake(self, lane: str) -> None:
        _guarded(lambda: self._wakeups.wake(lane))

    def call(self, turn_id: str, call: Call) -> None:
        self._send("loom.tool.call", turn_id, call.position, call.sends)

    def judge(self, turn_id: str, verdict: Verdict) -> None:
        self._send("loom.judge.score", turn_id, verdict.reply_n, verdict.position, verdict.sends)

    def fan_out(self, lane: str, turn_id: str, calls: Sequence[Call], ticket: str) -> None:
        header = [
            signature("loom.tool.call", args=(turn_id, call.position, call.sends), immutable=True, app=self._app)
            for call in calls
        ]
        body = signature("loom.turn.wake", args=(lane, ticket), immutable=True, app=self._app)
        if crash_points.is_armed("turn.fanning_out"):
            after_task_publish.connect(_sent_one, sender="loom.tool.call")
        _guarded(lambda: chord(header, app=self._app)(body))

    def deliver(self, delivery_id: str) -> None:
        self._send("loom.webhook.deliver", delivery_id)

    def summarize(self, lane: str) -> None:
        self._send("loom.summary.compress", lane)

    def advance(self, run_id: str) -> None:
        self._send("loom.workflow.advance", run_id)

    def export_traces(self) -> None:
        self._send("loom.trace.export")

    def run_isolated(self, lane: str, token: str, turn_id: str, fence: int) -> int:
        # It dies with this process: nobody else would renew its lease or end it.
        task = self._app.current_worker_task
        node = task.request.hostname if task else ""
        command = shimmed((*self.isolated_command, lane, token, turn_id, str(fence), node))
        # What is left in os.environ has been blanked in what a program would inherit, see process_env.
        return subprocess.run(command, input=self._secrets, text=True, env=dict(os.environ), check=False).returncode

    def _send(self, task: str, *ids: str | int) -> None:
        _guarded(lambda: self._app.send_task(task, args=ids, ignore_result=True, retry=False))


def _sent_one(**_: object) -> None:
    crash_points.reached("turn.fanning_out")


def _guarded(action: Callable[[], object]) -> None:
    try:
        action()
    except (OperationalError, RedisError, Unavailable, OSError) as error:
        log.warning("not sent, the sweep will: %s", error)


def _outlived(action: Callable[[], object]) -> None:
    """Do something that may go wrong in any way: one bad message must not silence all that follow."""
    try:
        action()
    except Exception as error:  # the thread goes on; what is not sent, the sweep finds in the database
        log.warning("not sent, the sweep will: %s", error)


class DirectPublisher:
    """Sends in the thread that asks, where nobody waits for an answer: the sweep."""

    def put(self, action: Callable[[], object]) -> None:
        _outlived(action)

    def close(self) -> None:
        """Nothing waits."""


class Publisher:
    """Sends from a thread of its own: a broker that is dead or swallows bytes never delays a 202."""

    def __init__(self, most_waiting: int = 10_000) -> None:
        """Args: most_waiting: what waits beyond it is dropped; the sweep finds it in the database."""
        self._most_waiting = most_waiting
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="loom-publisher", daemon=True)
        self._thread.start()

    def put(self, action: Callable[[], object]) -> None:
        """Have something sent soon; never blocks, never raises."""
        if self._waiting.qsize() < self._most_waiting:
            self._waiting.put(log_context.inherited(action))
        else:
            log.warning("publisher is full; the sweep will send the wake-up")

    def close(self, timeout_s: float = 3.0) -> None:
        """Send what waits, then stop; what a broker that hangs has not taken by then is left to the sweep."""
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (action := self._waiting.get()) is not None:
            _outlived(action)
