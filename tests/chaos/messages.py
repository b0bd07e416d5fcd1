"""Messages to Loom's workers that nobody of Loom sent."""

from collections.abc import Iterator
from typing import Any

from celery import Celery
from celery.utils import uuid

from loom_worker.core.settings import from_env
from loom_worker.tasks.app import configure
from tests.chaos.world import World

MOST = 10
"""Lanes, calls, runs or deliveries at a time."""


class Messages:
    """Sends straight to the broker, past the proxy."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._app: Celery | None = None

    def repeat(self, times: int) -> Iterator[str]:
        """Tell of lanes, tool calls, runs and deliveries that are under way so many times; yields each one's name.

        What is sent is one message a time with the same task id, as a broker redelivers it.
        """
        for task, query in (
            ("loom.turn.run", f"SELECT lane FROM turns WHERE completed_ms IS NULL GROUP BY lane LIMIT {MOST}"),
            (
                "loom.tool.call",
                "SELECT turn_id, position, sends FROM calls WHERE status IN ('pending', 'running') AND sends > 0"
                f" LIMIT {MOST}",
            ),
            ("loom.workflow.advance", f"SELECT id FROM workflow_runs WHERE completed_ms IS NULL LIMIT {MOST}"),
            ("loom.webhook.deliver", f"SELECT id FROM outbox WHERE status = 'pending' LIMIT {MOST}"),
        ):
            for row in self._world.rows(query):
                if self._send(task, row, times):
                    yield f"{task} {row[0]}"

    def wake_all(self, times: int) -> int:
        """Ring the wake-up of every lane that has work; how many there were."""
        lanes = self._world.rows("SELECT DISTINCT lane FROM turns WHERE completed_ms IS NULL LIMIT 50")
        return sum(self._send("loom.turn.run", lane, times) for lane in lanes)

    def _send(self, task: str, arguments: tuple[Any, ...], times: int) -> bool:
        task_id = uuid()
        try:
            for _ in range(times):
                self._celery().send_task(task, args=arguments, task_id=task_id, ignore_result=True, retry=False)
        except Exception:  # the broker may be dead just now
            return False
        return True

    def _celery(self) -> Celery:
        """An app of our own: Loom's is one a process, and keeps its connections when it is pointed elsewhere."""
        if self._app is None:
            broker = self._world.folder / "broker"
            loom = configure(from_env({"LOOM_HOME": str(self._world.home), "LOOM_REDIS_URL": f"unix://{broker}"}))
            names = ("broker_url", "broker_transport_options", "task_serializer", "task_routes")
            self._app = Celery("chaos", set_as_current=False)
            self._app.conf.update({name: loom.conf[name] for name in names})
        return self._app
