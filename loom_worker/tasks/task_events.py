"""Reports of this process' work, as Celery's task events: what Flower lists.

Celery's own events tell of messages, and Loom's messages are but hints: one wake-up may run several turns or none, one
turn may take several, and a task that stores a failure has succeeded for Celery. So the tasks send none
(``send_events=False``), and each run, turn, call, verdict, summary and delivery is reported as a task of its own. They
are sent by the worker's loop (``calm_events.py``).
"""

import logging
import time
from collections import deque
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from loom_worker.core.errors import Unavailable
from loom_worker.core.monitor import Monitor, Work, WorkKind
from loom_worker.core.values.json import Json

log = logging.getLogger(__name__)

NAMES: dict[WorkKind, str] = {
    "run": "loom.workflow.run",
    "turn": "loom.turn.run",
    "tool": "loom.tool.call",
    "judge": "loom.judge.score",
    "summary": "loom.summary.compress",
    "webhook": "loom.webhook.deliver",
}
"""As the messages are called that make a worker do it; a run is done by its turns."""
_BEGINNINGS = frozenset({"task-received", "task-started"})
MOST = 5_000
"""Reports that wait while the broker is away; of more, the oldest are dropped."""


class TaskEvents(Monitor):
    """A Monitor that keeps reports until the worker's loop sends them; a thread that reports does no I/O."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Work, Json]] = deque(maxlen=MOST)

    def started(self, work: Work) -> None:
        now_s = time.time()
        self._waiting.append(("task-received", work, {"timestamp": now_s}))
        self._waiting.append(("task-started", work, {"timestamp": now_s, "result": None, "exception": None}))

    def waits(self, work: Work, what_for: str, *, run_ms: int) -> None:
        self._put("task-retried", work, f"waits for {what_for}", None, run_ms)

    def succeeded(self, work: Work, what: str, *, run_ms: int) -> None:
        self._put("task-succeeded", work, what, None, run_ms)

    def failed(self, work: Work, why: str, *, run_ms: int) -> None:
        self._put("task-failed", work, None, why, run_ms)

    def cancelled(self, work: Work, why: str, *, run_ms: int) -> None:
        self._put("task-revoked", work, why, None, run_ms)

    def _put(self, kind: str, work: Work, result: str | None, exception: str | None, run_ms: int) -> None:
        said: Json = {"timestamp": time.time(), "result": result, "exception": exception}
        self._waiting.append((kind, work, {**said, "runtime": run_ms / 1000} if run_ms else said))

    def send(self, dispatcher: Any) -> None:
        """Send what waits; for one thread at a time.

        Args:
            dispatcher: Celery's ``EventDispatcher``.
        """
        reports = [self._waiting.popleft() for _ in range(len(self._waiting))]
        # Of what has begun and ended since, the beginning says nothing more; most turns are so short.
        done = {(work.id, work.entry) for kind, work, _ in reports if kind not in _BEGINNINGS}
        for kind, work, said in reports:
            if kind != "task-started" or (work.id, work.entry) not in done:
                dispatcher.send(kind, **_fields(work), **said)

    def send_rest(self, app: Celery, *, node: str) -> None:
        """Send what still waits while no loop runs any more, as far as the broker takes it.

        Args:
            node: the name of the worker, as Flower knows it.
        """
        if not self._waiting:
            return
        try:
            with app.events.default_dispatcher(hostname=node) as dispatcher:
                self.send(dispatcher)
        except (OperationalError, RedisError, Unavailable, OSError) as error:
            log.warning("reports of this process' work were not sent: %s", error)


def _fields(work: Work) -> Json:
    """What each event of a task tells, so that a Flower that missed the first one knows it all the same.

    A timestamp in seconds in place of Celery's own: a turn that is entered again keeps its first start.
    """
    fields: Json = {
        "uuid": work.id,
        "name": NAMES[work.kind],
        "args": repr(work.ids),
        "kwargs": repr(dict(work.names)),
        "entry": work.entry,
    }
    if work.accepted_ms is not None:
        fields["received"] = work.accepted_ms / 1000
    if work.started_ms is not None:
        fields["started"] = work.started_ms / 1000
    if work.part_of is not None:
        fields["parent_id"] = fields["root_id"] = work.part_of
    return fields
