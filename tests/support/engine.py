"""Workers without a supervisor or web: a real Valkey, a real `loom worker`, and the service in this process.

with Engine(tmp_path, valkey_server, ANTHROPIC_BASE_URL=server.url) as engine:
    engine.start_worker("one")
    turn = engine.ended(engine.submit("s1", "hello"))
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loom_worker.core.settings import from_env
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.lanes.lease_renewer import LiveWorkers
from loom_worker.runtime import build
from loom_worker.store.prepare import prepare
from loom_worker.tasks.app import app
from tests.support import system
from tests.support.shipped_patterns import share_index
from tests.support.until import until
from tests.support.valkey import Valkey
from tests.support.waiting import Clients, LoopThread

WORKSPACE = "default"
TURN_S = 45.0
STOP_S = 45.0


class Engine:
    """Service and workers on one home, for ``with``; every worker is ended with it."""

    def __init__(self, home: Path, valkey: Valkey, **environ: str) -> None:
        home.mkdir(parents=True)
        self.home = home
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "LOOM_HOME": str(home),
            "LOOM_REDIS_URL": valkey.url,
            "LOOM_SQLITE_SYNC": "normal",
            "LOOM_AGENTS_DIR": system.plain_agent(home / "agents", "plain"),
            **environ,
        }
        share_index(home)
        self.settings = from_env(self.environ)
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._valkey = valkey

    def __enter__(self) -> Self:
        with self._valkey.client() as client:
            client.flushall()
        prepare(self.settings)
        self.service = build.service(self.settings)
        self._clients = Clients(LoopThread().__enter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.wait()
        self._clients.loop.__exit__(kind, error, trace)
        self.service.close()
        for pid in system.leftovers(self.home):
            system.kill(pid)

    def start_worker(self, name: str, *, queues: str = "turn,tool,webhook,summary") -> subprocess.Popen[bytes]:
        """Start a worker and wait until its heartbeat goes on."""
        command = system.loom("worker", "--queues", queues, "--name", name)
        with (self.home / f"{name}.log").open("ab") as log:
            worker = subprocess.Popen(command, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.workers[name] = worker
        until(lambda: worker.pid in self._beating() or worker.poll() is not None, 60, f"{name} is alive")
        assert worker.poll() is None, self.log(name)
        return worker

    def log(self, name: str) -> str:
        """What a worker has logged."""
        return (self.home / f"{name}.log").read_text()

    def submit(self, session: str, text: str, **fields: Any) -> Turn:
        """Accept a turn for the agent without patterns."""
        return self.service.submit(WORKSPACE, session, NewTurn(input=text, **fields), agent="plain")[0]

    def turn(self, turn: Turn) -> Turn:
        """The turn as it is now."""
        return self.service.turn(WORKSPACE, turn.id)

    def ended(self, turn: Turn, timeout_s: float = TURN_S) -> Turn:
        """The turn once it has ended."""
        found = self._clients.wait(self.service.waiter, WORKSPACE, turn.id, timeout_s=timeout_s).result()
        assert found.is_finished, f"{turn.id} is {found.status} after {timeout_s} s"
        return found

    def messages(self, session: str) -> tuple[Message, ...]:
        """All messages of a session, oldest first."""
        return self.service.messages.page(WORKSPACE, session, limit=500, after=None).items

    def events(self, turn: Turn) -> Iterator[Event]:
        """The turn's events as they come, until its end."""
        return self._clients.events(self.service.waiter, WORKSPACE, turn.id)

    def rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Rows of the database, read past everything."""
        return system.rows(self.home / "loom.db", query, *values)

    def tasks_run(self) -> dict[str, int]:
        """How many Celery tasks of each name the workers have taken up since they started."""
        running = sum(worker.poll() is None for worker in self.workers.values())
        replies = app.control.inspect(timeout=10.0, limit=running).stats() or {}
        totals: dict[str, int] = {}
        for stats in replies.values():
            for name, count in stats["total"].items():
                totals[name] = totals.get(name, 0) + count
        return totals

    def _beating(self) -> set[int]:
        with self._valkey.client() as client:
            return {system.pid_of(name) for name in LiveWorkers(client).alive()}
