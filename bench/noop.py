"""Raw no-op Celery tasks on the same broker: what Loom's figures are compared with."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from celery import Celery

from loom_worker.core.settings import embedded_url
from loom_worker.tasks import transport


def connected(home: Path) -> tuple[Celery, redis.Redis]:
    """An app on a broker, with Loom's own options where they cost or save time, and a client for the answers."""
    url = embedded_url(home)
    transport.install()
    app = Celery("noop", set_as_current=False)
    app.conf.update(
        broker_url=f"redis+socket://{url.removeprefix('unix://')}",
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_default_queue="noop",
        worker_send_task_events=True,
        worker_hijack_root_logger=False,
        broker_transport_options={"global_keyprefix": "noop:", "priority_steps": [0]},
    )
    return app, redis.Redis.from_url(url, socket_timeout=30)


@dataclass(frozen=True)
class Noop:
    """Tasks that do nothing, and a worker that does them."""

    app: Celery
    answers: redis.Redis

    def round_trips_ms(self, count: int) -> list[float]:
        """From sending a task to knowing that it ran, one after the other."""
        times = []
        for n in range(count):
            began_s = time.perf_counter()
            self._send(n)
            self._await()
            times.append((time.perf_counter() - began_s) * 1000)
        return times

    def per_s(self, count: int) -> float:
        """Tasks a second, from the first sending to the last answer."""
        began_s = time.perf_counter()
        for n in range(count):
            self._send(n)
        for _ in range(count):
            self._await()
        return count / (time.perf_counter() - began_s)

    def _send(self, n: int) -> None:
        self.app.send_task("noop", args=(n,), ignore_result=True)

    def _await(self) -> None:
        assert self.answers.blpop(["noop:done"], timeout=20), "no answer of the no-op worker"


@contextmanager
def noop_tasks(home: Path) -> Iterator[Noop]:
    """A worker of raw no-op tasks on the broker of the Loom with this home, warm."""
    command = [sys.executable, "-m", "bench.noop", str(home)]
    worker = subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        tasks = Noop(*connected(home))
        tasks.round_trips_ms(50)
        yield tasks
    finally:
        worker.terminate()
        worker.wait(20)


def work(home: Path) -> None:
    """Be the worker of these tasks."""
    app, answers = connected(home)

    def noop(n: int) -> None:
        answers.rpush("noop:done", n)

    app.task(noop, name="noop")
    app.Worker(pool="threads", concurrency=32, without_mingle=True, without_gossip=True, loglevel="ERROR").start()


if __name__ == "__main__":
    work(Path(sys.argv[1]))
