"""Raw no-op Celery tasks on the same broker: what Loom's figures are compared with."""

import sys
import time

import redis
from celery import Celery

from loom_worker.tasks import transport


def connected(socket: str) -> tuple[Celery, redis.Redis]:
    """An app on a broker, with Loom's own options where they cost or save time, and a client for the answers."""
    transport.install()
    app = Celery("noop", set_as_current=False)
    app.conf.update(
        broker_url=f"redis+socket://{socket}",
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_default_queue="noop",
        worker_send_task_events=True,
        worker_hijack_root_logger=False,
        broker_transport_options={"global_keyprefix": "noop:", "priority_steps": [0]},
    )
    return app, redis.Redis(unix_socket_path=socket, socket_timeout=30)


def round_trips(app: Celery, client: redis.Redis, count: int) -> list[float]:
    """Seconds from sending a task to knowing that it ran, one after the other."""
    times = []
    for n in range(count):
        began_s = time.perf_counter()
        app.send_task("noop", args=(n,), ignore_result=True)
        client.blpop(["noop:done"], timeout=20)
        times.append(time.perf_counter() - began_s)
    return times


def burst(app: Celery, client: redis.Redis, count: int) -> float:
    """Seconds for so many tasks, from the first sending to the last answer."""
    began_s = time.perf_counter()
    for n in range(count):
        app.send_task("noop", args=(n,), ignore_result=True)
    for _ in range(count):
        client.blpop(["noop:done"], timeout=20)
    return time.perf_counter() - began_s


def work(socket: str) -> None:
    """Be the worker of these tasks."""
    app, answers = connected(socket)

    @app.task(name="noop")
    def noop(n: int) -> None:
        answers.rpush("noop:done", n)

    app.Worker(pool="threads", concurrency=32, without_mingle=True, without_gossip=True, loglevel="ERROR").start()


if __name__ == "__main__":
    work(sys.argv[1])
