"""The main of the fork server: imports Loom, then forks a process for each request (``supervisor/launcher.py``).

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
from importlib import import_module

from loom_worker.cli.main import main as loom
from loom_worker.core.child_process import ORPHANED, die_with_parent
from loom_worker.core.isolation import process
from loom_worker.llm import tokens
from loom_worker.supervisor.launcher import PID_BYTES

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


def main() -> None:
    """Serve requests until the supervisor closes its end."""
    handle, supervisor_pid, openness, modules = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    if openness == "hidden":
        process.hide()  # what is forked inherits it, so no secret that it is sent can be seen
    _load([*MODULES, *filter(None, modules.split(","))])
    with socket.socket(fileno=handle) as supervisor:
        while True:
            word, handles, _, _ = socket.recv_fds(supervisor, 1, 3)
            if not word:
                os._exit(0)  # at once: the supervisor has gone on, and there is nothing to close
            if _forks(supervisor_pid):
                break  # in the new process
            for each in handles:
                os.close(each)
    _become(*handles)


def _load(modules: Sequence[str]) -> None:
    gc.disable()
    # A thread of its own for one product of small matrices: forks would lack it.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in modules:
        import_module(name)
    tokens.count("", "")  # loads the table of tokens, 40 MB
    # Not looked through by the collector of any fork, which would write to every object, and so copy it.
    gc.freeze()


def _forks(supervisor_pid: int) -> bool:
    """Fork twice, and end the process between, so that the supervisor becomes the parent; True in the new process."""
    if len(os.listdir("/proc/self/task")) > 1:
        return False  # other threads are lost in a fork, and the locks that they hold stay closed
    try:
        middle = os.fork()
    except OSError:  # no room; the supervisor sees that nobody answers
        return False
    if middle:
        os.waitpid(middle, 0)
        return False
    middle = os.getpid()
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    while os.getppid() == middle:
        time.sleep(0.0005)
    die_with_parent()
    if os.getppid() != supervisor_pid:
        os._exit(ORPHANED)
    return True


def _become(handle: int, output: int, errors: int) -> None:
    """Run the command that the supervisor sends, as `loom` does in a process that was started for it.

    Args:
        handle: of a socket of this process alone: what others are sent, secrets among it, never passes through here.
        output: descriptor of its standard output, ``errors`` of that of its errors.
    """
    os.setsid()
    with socket.socket(fileno=handle) as supervisor:
        supervisor.sendall(os.getpid().to_bytes(PID_BYTES, "big"))
        with supervisor.makefile("rb") as request:
            argv, arguments, environ = json.load(request)
    for standard, opened in ((1, output), (2, errors)):
        os.dup2(opened, standard)
        os.close(opened)
    process.show_as(argv)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["loom", *arguments]
    gc.enable()
    loom(args=arguments, prog_name="loom")
