"""Raw no-op Celery tasks on the same broker: what Loom's figures are compared with."""

import sys
import time

import redis
from celery import Celery

app = Celery("noop", set_as_current=False)


def configure(socket: str) -> redis.Redis:
    """Point the app at a broker; returns a client for the answers."""
    from loom_worker.tasks import transport

    transport.install()
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
    return redis.Redis(unix_socket_path=socket, socket_timeout=30)


answers: redis.Redis | None = None


@app.task(name="noop")
def noop(n: int) -> None:
    """Say that it ran."""
    assert answers is not None
    answers.rpush("noop:done", n)


def round_trips(client: redis.Redis, count: int) -> list[float]:
    """Seconds from sending a task to knowing that it ran, one after the other."""
    times = []
    for n in range(count):
        began_s = time.perf_counter()
        app.send_task("noop", args=(n,), ignore_result=True)
        client.blpop(["noop:done"], timeout=20)
        times.append(time.perf_counter() - began_s)
    return times


def burst(client: redis.Redis, count: int) -> float:
    """Seconds for so many tasks, from the first sending to the last answer."""
    began_s = time.perf_counter()
    for n in range(count):
        app.send_task("noop", args=(n,), ignore_result=True)
    for _ in range(count):
        client.blpop(["noop:done"], timeout=20)
    return time.perf_counter() - began_s


if __name__ == "__main__":
    answers = configure(sys.argv[1])
    app.Worker(pool="threads", concurrency=32, without_mingle=True, without_gossip=True, loglevel="ERROR").start()
