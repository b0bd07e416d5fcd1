"""Starts the processes of a world and starts again, at once, whatever dies: `python -m tests.chaos.keeper`.

Loom's processes are forked from this one, which has loaded all they need: a start takes a tenth of the three seconds
of CPU that the imports cost, and a run can afford hundreds of kills. It has no threads, so its children begin clean.
Commands come as JSON lines on standard input, news go as JSON lines to standard output; when the input ends, all ends.
"""

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_S = 0.01
"""Seconds between two looks after the dead."""
APART_S = 1.0
"""Between two starts of the same process: one that cannot live must not take all of the CPU."""
LOADED = (
    "anthropic",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "sqlalchemy.dialects.sqlite",
    "loom_worker.runtime.worker_process",
    "loom_worker.tasks.tasks",
    "tests.chaos.process",
    "web.serve",
)
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Spec:
    """A process that shall run."""

    name: str
    argv: list[str]
    environ: dict[str, str]
    log: str
    is_loom: bool
    """True: the arguments of `loom`, for a forked child; False: a command line of its own."""
    pid: int = 0
    began_s: float = 0.0
    is_wanted: bool = True


class Keeper:
    """All specs by name; a forked child leaves ``keep`` with the spec it shall become."""

    def __init__(self) -> None:
        self._specs: dict[str, Spec] = {}
        self._input = b""
        self._parent = os.getpid()

    def keep(self) -> Spec | None:
        """Serve until the input ends: None; in a child: what it is."""
        while True:
            ready, _, _ = select.select([0], [], [], LOOK_S)
            if ready and not self._read():
                self._kill_all()
                return None
            self._bury()
            for spec in self._specs.values():
                if self._is_due(spec) and self._start(spec):
                    return spec

    def _read(self) -> bool:
        data = os.read(0, 65536)
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(data)

    def _obey(self, command: dict[str, Any]) -> None:
        match command.pop("do"):
            case "start":
                self._specs[command["name"]] = Spec(**command)
            case "forget":
                for name in command["names"]:
                    self._specs[name].is_wanted = False

    def _bury(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what it had started must not outlive it
            spec = next(one for one in self._specs.values() if one.pid == pid)
            spec.pid = 0
            _tell("ended", name=spec.name, pid=pid, status=os.waitstatus_to_exitcode(status))

    @staticmethod
    def _is_due(spec: Spec) -> bool:
        age_s = time.monotonic() - spec.began_s
        return spec.is_wanted and not spec.pid and (age_s >= APART_S or not spec.began_s)

    def _start(self, spec: Spec) -> bool:
        """True in the child."""
        spec.began_s = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._become(spec)
            return True
        spec.pid = pid
        _tell("started", name=spec.name, pid=pid, status=0)
        return False

    def _become(self, spec: Spec) -> None:
        os.setsid()
        die_with(self._parent)
        log = os.open(spec.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(spec.environ)
        if not spec.is_loom:
            os.execvp(spec.argv[0], spec.argv)

    def _kill_all(self) -> None:
        for spec in self._specs.values():
            if spec.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(spec.pid, signal.SIGKILL)
                os.waitpid(spec.pid, 0)


def die_with(parent_pid: int) -> None:
    """Be killed by the kernel when the thread that started this process ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(125)


def start(environ: dict[str, str], log: Path, *, loads_loom: bool) -> "subprocess.Popen[bytes]":
    """Run a keeper that ends with the calling thread.

    Args:
        loads_loom: False: quicker there, but it cannot start Loom's processes.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.keeper", str(os.getpid()), *(["loom"] if loads_loom else [])],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )


def _tell(event: str, **fields: Any) -> None:
    os.write(1, (json.dumps({"event": event, "at_s": time.time(), **fields}) + "\n").encode())


def _load() -> None:
    """Bring into memory what every Loom process needs; importing opens nothing."""
    for name in LOADED:
        importlib.import_module(name)
    from loom_worker.llm import tokens

    tokens.count("once", model="claude")


def main() -> None:
    die_with(int(sys.argv[1]))
    if sys.argv[2:]:
        _load()
    _tell("ready", name="keeper", pid=os.getpid(), status=0)
    spec = Keeper().keep()
    if spec is None:
        return
    from tests.chaos.process import main as become

    sys.argv = ["loom", *spec.argv]
    sys.exit(become(spec.argv))


if __name__ == "__main__":
    main()
