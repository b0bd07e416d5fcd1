"""Sending: wake-ups, tool calls and deliveries, by ids alone; a message is under a kilobyte."""

import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from celery import Celery, chord, signature
from celery.signals import after_task_publish
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from loom_worker.core import crash_points
from loom_worker.core.child_process import shimmed
from loom_worker.core.errors import Unavailable
from loom_worker.core.values.turns import Call
from loom_worker.tasks.wakeups import WakeupQueue
from loom_worker.turn.runtime import Dispatcher

log = logging.getLogger(__name__)


def dispatcher(app: Celery, wakeups: WakeupQueue, secrets: Mapping[str, str]) -> Dispatcher:
    """The ways out of a worker process. A message that cannot be sent is logged and left to the sweep.

    Args:
        secrets: variables for a process that runs one turn; they are in nobody's environment any more.
    """
    return Dispatcher(
        wake=lambda lane: wake(wakeups, lane),
        fan_out=lambda lane, turn_id, calls, ticket: _guarded(lambda: _fan_out(app, lane, turn_id, calls, ticket)),
        call=lambda turn_id, call: send(app, "loom.tool.call", turn_id, call.position, call.sends),
        deliver=lambda delivery_id: send(app, "loom.webhook.deliver", delivery_id),
        summarize=lambda lane: send(app, "loom.summary.compress", lane),
        run_isolated=partial(_run_isolated, json.dumps(dict(secrets))),
    )


def send(app: Celery, task: str, *ids: str | int) -> None:
    """Put one task on its queue."""
    _guarded(lambda: app.send_task(task, args=ids, ignore_result=True, retry=False))


def wake(wakeups: WakeupQueue, lane: str) -> None:
    """Wake a lane."""
    _guarded(lambda: wakeups.wake(lane))


def _fan_out(app: Celery, lane: str, turn_id: str, calls: Sequence[Call], ticket: str) -> None:
    header = [
        signature("loom.tool.call", args=(turn_id, call.position, call.sends), immutable=True, app=app)
        for call in calls
    ]
    body = signature("loom.turn.wake", args=(lane, ticket), immutable=True, app=app)
    if crash_points.is_armed("turn.fanning_out"):
        after_task_publish.connect(_sent_one, sender="loom.tool.call")
    chord(header, app=app)(body)


def _sent_one(**_: object) -> None:
    crash_points.reached("turn.fanning_out")


def _run_isolated(secrets: str, lane: str, token: str, turn_id: str, fence: int) -> int:
    # It dies with this process: nobody else would renew its lease or end it.
    command = shimmed((sys.executable, "-m", "loom_worker.runtime.isolated", lane, token, turn_id, str(fence)))
    # What is left in os.environ has been blanked in what a program would inherit, see process_env.
    return subprocess.run(command, input=secrets, text=True, env=dict(os.environ), check=False).returncode


def _guarded(action: Callable[[], object]) -> None:
    try:
        action()
    except (OperationalError, RedisError, Unavailable, OSError) as error:
        log.warning("not sent, the sweep will: %s", error)


class Publisher:
    """Sends from a thread of its own: a broker that is dead or swallows bytes never delays a 202."""

    def __init__(self, most_waiting: int = 10_000) -> None:
        """Args: most_waiting: what waits beyond it is dropped; the sweep finds it in the database."""
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(most_waiting)
        self._thread = threading.Thread(target=self._run, name="loom-publisher", daemon=True)
        self._thread.start()

    def put(self, action: Callable[[], object]) -> None:
        """Have something sent soon; never blocks, never raises."""
        try:
            self._waiting.put_nowait(action)
        except queue.Full:
            log.warning("publisher is full; the sweep will ring")

    def close(self, timeout_s: float = 3.0) -> None:
        """Send what waits, then stop; what a broker that hangs has not taken by then is left to the sweep."""
        deadline_s = time.monotonic() + timeout_s
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=timeout_s)
        self._thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self) -> None:
        while (action := self._waiting.get()) is not None:
            try:
                action()
            except Exception as error:  # the top of a thread: one bad message must not silence all that follow
                log.warning("not sent, the sweep will: %s", error)
