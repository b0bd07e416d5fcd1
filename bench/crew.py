"""The processes of `loom up` without its patience: whatever dies is started again, however often."""

import base64
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from bench.client import Client
from bench.model import ROOT
from loom_worker.core.isolation import home_secrets
from loom_worker.core.settings import embedded_socket, embedded_url, from_env
from loom_worker.supervisor import home as homes
from loom_worker.supervisor import valkey
from loom_worker.supervisor.decide import FIRST_PAUSE_S, Spec
from loom_worker.supervisor.processes import Processes
from loom_worker.supervisor.specs import loom_command, specs
from tests.support import system
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

READY_S = 90.0
WORKERS = ("worker-",)
STOP_S = 30.0
SECRET = "whsec_" + base64.b64encode(b"a secret of the measuring, alone").decode()


class Crew:
    """For ``with``, from the main thread: the processes die with the thread that started them."""

    def __init__(self, *, entry: Sequence[str] = (), entering: Sequence[str] = WORKERS, **environ: str) -> None:
        """Args:
        entry: command line in place of `loom`.
        entering: how the names of those processes begin that are started by it.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="loom-bench-")
        self.home = Path(self._folder.name) / "home"
        self.port = unused_port()
        self._environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": self._folder.name,
            "LANG": "C.UTF-8",
            "LOOM_HOME": str(self.home),
            "LOOM_PORT": str(self.port),
            "LOOM_LOG_LEVEL": "WARNING",
            "LOOM_WEBHOOK_SECRET": SECRET,
            **environ,
        }
        self._specs = wanted(self._environ, entry, entering)
        self._pids: dict[str, int] = {}
        self._due_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        homes.prepare(self.home)
        subprocess.run([*loom_command(), "prepare"], env=self._environ, check=True, stdout=subprocess.DEVNULL)
        self._processes = Processes(self.home / homes.LOGS, self._environ)
        try:
            self._start_all()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def client(self) -> Client:
        """A connection of its own."""
        return Client(self.port)

    def rows(self, query: str, *values: str) -> list[tuple[object, ...]]:
        """Rows of Loom's database."""
        return system.rows(self.home / "loom.db", query, *values)

    def send(self, name: str, number: signal.Signals) -> None:
        """Any signal, to one process."""
        os.kill(self._pids[name], number)

    def tend(self) -> None:
        """Start again what has been dead for as long as `loom up` first waits."""
        now_s = time.monotonic()
        for name in self._reaped():
            self._due_s[name] = now_s + FIRST_PAUSE_S
        for name in [name for name, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[name]
            self._start(name)

    def settle(self) -> None:
        """Wait until the heartbeat of every worker that runs has beaten."""

        def all_beat() -> bool:
            self.tend()
            workers = {pid for name, pid in self._pids.items() if name.startswith("worker-")}
            is_open = valkey.is_open(embedded_socket(self.home))  # it may be starting, too
            return is_open and not self._due_s and workers <= system.beating(client)

        with redis.Redis.from_url(embedded_url(self.home), decode_responses=True) as client:
            until(all_beat, READY_S, "all workers are alive")

    def _start_all(self) -> None:
        socket_path = embedded_socket(self.home)
        home_secrets.embedded_with_password(self.home)
        valkey.make_room(socket_path, self.home / "valkey")
        foundations = [spec.name for spec in self._specs.values() if spec.is_foundation]
        for name in foundations:
            self._start(name)
        until(lambda: valkey.is_open(socket_path), READY_S, "Valkey is open")
        for name in self._specs.keys() - set(foundations):
            self._start(name)
        self.settle()
        until(self._answers, READY_S, "the web answers")

    def _start(self, name: str) -> None:
        self._pids[name] = self._processes.start(self._specs[name])

    def _answers(self) -> bool:
        try:
            return self.client().get("/readyz")[0] == 200
        except OSError:
            return False

    def _reaped(self) -> tuple[str, ...]:
        """Those that ended since the last call."""
        names = tuple(self._processes.ended())
        for name in names:
            del self._pids[name]
        return names

    def _stop(self) -> None:
        self._reaped()
        for stage in sorted({self._specs[name].stop_stage for name in self._pids}):
            for name in self._running_at(stage):
                self._processes.ask(name)
            deadline_s = time.monotonic() + STOP_S
            while self._running_at(stage) and time.monotonic() < deadline_s:
                time.sleep(0.02)
                self._reaped()
            for name in self._running_at(stage):
                self._processes.kill(name)
        self._folder.cleanup()

    def _running_at(self, stage: int) -> list[str]:
        return [name for name in self._pids if self._specs[name].stop_stage == stage]


def wanted(environ: Mapping[str, str], entry: Sequence[str], entering: Sequence[str] = WORKERS) -> dict[str, Spec]:
    """The processes of `loom up` by name.

    Args:
        entry: command line in place of `loom`.
        entering: how the names of those processes begin that are started by it.
    """
    planned = specs(from_env(environ), flower_port=unused_port())
    return {spec.name: _entering(spec, entry, tuple(entering)) for spec in planned}


def _entering(spec: Spec, entry: Sequence[str], entering: tuple[str, ...]) -> Spec:
    if not entry or not spec.name.startswith(entering):
        return spec
    return replace(spec, argv=(*entry, *spec.argv[len(loom_command()) :]))
