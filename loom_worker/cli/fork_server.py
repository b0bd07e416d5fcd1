"""The main of the fork server: imports Loom, then forks a process for each request (``supervisor/fork_server.py``).

Importing takes a process most of its start, and most of its memory. Forked, all have it from one process, and share
what they do not change. What is forked has no more than that: no thread, no connection, no lock, no secret; everything
else is made afterwards, by the same commands as in a process that was started.
"""

import gc
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from loom_worker.cli.main import main as loom
from loom_worker.core.child_process import ORPHANED, die_with_parent
from loom_worker.core.isolation import process
from loom_worker.core.values.json import Json
from loom_worker.llm import tokens
from loom_worker.supervisor.fork_server import LENGTH_BYTES, PID_BYTES

MODULES = (
    "loom_worker.cli.process",
    "loom_worker.runtime.worker_process",
    "loom_worker.tasks.tasks",
    "loom_worker.store.prepare",
    "web.serve",
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.backends.redis",
    "celery.worker.consumer",
    "kombu.transport.redis",
    "numpy",
)
"""What more than one process needs."""


@dataclass(frozen=True, slots=True)
class Request:
    """A process to be forked."""

    argv: Sequence[str]
    """Its command line, as `ps` shows it."""
    arguments: Sequence[str]
    """Of ``loom``."""
    environ: Json
    output: int
    errors: int
    """Descriptors of its standard output and error."""


def main() -> None:
    """Serve requests until the supervisor closes its end."""
    handle, supervisor_pid, openness, modules = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    if openness == "hidden":
        process.hide()  # what is forked inherits it, so no secret that it is sent can be seen
    _load([*MODULES, *filter(None, modules.split(","))])
    with socket.socket(fileno=handle) as connection:
        while (request := _received(connection)) is not None:
            if _forks(connection, supervisor_pid):
                break  # in the new process
            os.close(request.output)
            os.close(request.errors)
    if request is None:
        os._exit(0)  # at once: the supervisor has gone on, and there is nothing to close
    _become(request)


def _load(modules: Sequence[str]) -> None:
    gc.disable()
    # A thread of its own for one product of small matrices: forks would lack it.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in modules:
        import_module(name)
    tokens.count("", "")  # loads the table of tokens, 40 MB
    # Not looked through by the collector of any fork, which would write to every object, and so copy it.
    gc.freeze()


def _received(connection: socket.socket) -> Request | None:
    """The next request; None once the other end is closed."""
    length, handles, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 2)
    if len(length) < LENGTH_BYTES:
        return None
    text = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    argv, arguments, environ = json.loads(text)
    return Request(argv, arguments, environ, *handles)


def _forks(connection: socket.socket, supervisor_pid: int) -> bool:
    """Fork twice, and end the process between, so that the supervisor becomes the parent; True in the new process."""
    try:
        if len(os.listdir("/proc/self/task")) > 1:
            raise OSError("threads are lost in a fork, and their locks stay closed")
        if middle := os.fork():
            os.waitpid(middle, 0)
            return False
        middle = os.getpid()
        if os.fork():
            os._exit(0)
    except OSError:
        connection.sendall(bytes(PID_BYTES))
        if os.getpid() == middle:
            os._exit(1)
        return False
    while os.getppid() == middle:
        time.sleep(0.0005)
    die_with_parent()
    if os.getppid() != supervisor_pid:
        os._exit(ORPHANED)
    connection.sendall(os.getpid().to_bytes(PID_BYTES, "big"))
    return True


def _become(request: Request) -> None:
    """Run the command as `loom` does in a process that was started for it."""
    os.setsid()
    for standard, handle in ((1, request.output), (2, request.errors)):
        os.dup2(handle, standard)
        os.close(handle)
    process.show_as(request.argv)
    os.environ.clear()
    os.environ.update(request.environ)
    sys.argv = ["loom", *request.arguments]
    gc.enable()
    loom(args=request.arguments, prog_name="loom")
