"""What the peers have in common: two requests of a client, processes that are started and ended, interpreters.

Only the standard library is imported here: the interpreters of peers import this, too.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.error import URLError
from urllib.request import Request, urlopen

from bench.processes import cpu_ms, family

ROOT = Path(__file__).parents[2]
READY_S = 60.0
STOP_S = 20.0
LOOK_S = 0.1
HISTORY = 200
"""Most messages of a session that a turn reads, as Loom's does."""


class NotInstalled(Exception):
    """A peer's package is missing; the text says how to install it."""


class Http(Protocol):
    """A client with a connection that is kept alive, such as httpx2.Client."""

    def get(self, url: str) -> Any:
        """An answer with ``status_code`` and ``json()``."""

    def post(self, url: str, *, json: object) -> Any:
        """The same."""


class Peer(Protocol):
    """A system that runs."""

    name: str
    versions: str

    def submit(self, http: Http, session: str, text: str) -> str:
        """Ask for a turn; its id, once it cannot be lost any more."""

    def wait(self, http: Http, turn_id: str) -> None:
        """Return when the turn has completed."""

    def cpu_ms(self) -> float:
        """Processor time of all processes of the system since their start."""


@dataclass
class Processes:
    """Started by one peer, with one folder and one log; all of them end with the ``with``."""

    folder: Path
    _started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, *command: str, **environ: str) -> None:
        """Run a command in the folder; this checkout's packages can be imported there."""
        with (self.folder / "log").open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def until_answers(self, url: str) -> None:
        """Wait until this URL answers with a status below 500."""
        deadline_s = time.monotonic() + READY_S
        while time.monotonic() < deadline_s and all(process.poll() is None for process in self._started):
            with contextlib.suppress(URLError, OSError):
                urlopen(url, timeout=5).close()
                return
            time.sleep(LOOK_S)
        raise SystemExit(f"{url} does not answer:\n{(self.folder / 'log').read_text(errors='replace')[-2000:]}")

    def cpu_ms(self) -> float:
        """Of all of them and of what they started."""
        return sum(map(cpu_ms, family(process.pid for process in self._started)))

    def end(self) -> None:
        """Stop all, the last one first."""
        for process in reversed(self._started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def processes() -> Iterator[Processes]:
    """In a folder of their own, which is removed."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-peer-", ignore_cleanup_errors=True) as folder:
        started = Processes(Path(folder))
        try:
            yield started
        finally:
            started.end()


def interpreter(program: str, modules: Sequence[str], *, missing: str) -> str:
    """The Python whose environment has this program and can import these modules.

    Args:
        missing: how to install what is missing.

    Raises:
        NotInstalled: there is none on the PATH, nor beside this interpreter.
    """
    for python in _interpreters(program):
        test = [python, "-c", "import " + ", ".join(modules)]
        if subprocess.run(test, capture_output=True, check=False).returncode == 0:
            return python
    raise NotInstalled(missing)


def _interpreters(program: str) -> Iterator[str]:
    found = shutil.which(program)
    for folder in (Path(found).parent if found else None, Path(sys.executable).parent):
        if folder is not None and (folder / "python").exists():
            yield str(folder / "python")


def versions(python: str, *packages: str) -> str:
    """Names and versions of packages, as that interpreter has them."""
    code = "import sys, importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
    return subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, check=True).stdout.strip()


def post_json(url: str, body: bytes) -> None:
    """One request, outside of what is measured."""
    urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=30).close()


def checked(answer: Any, status: int) -> Any:
    """The JSON of an answer, which must have this status."""
    assert answer.status_code == status, answer.text
    return answer.json()
