"""What of the installation cannot work, found out by `loom doctor` in a process of its own while everything starts.

Not in the supervisor: what that imports would stay in its memory for as long as Loom runs, and users' files are run.
"""

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from loom_worker.core.isolation import process_env
from loom_worker.core.text import one_line
from loom_worker.core.values.problems import Problem
from loom_worker.supervisor.launcher import Launcher
from loom_worker.supervisor.specs import loom_command

STATUSES = (0, 1)
"""Exit statuses of a doctor that has looked: all is well, or something is not."""
SAID_CHARS = 300


@dataclass(frozen=True, slots=True)
class Told:
    """Findings that are known already."""

    found: tuple[Problem, ...] = ()

    def problems(self) -> tuple[Problem, ...]:
        """All of them."""
        return self.found


class Doctor:
    """The process that looks, and what it found. Use it from the main thread only: children die with their thread."""

    def __init__(self, environ: Mapping[str, str], launcher: Launcher) -> None:
        """Start it.

        Args:
            environ: of the processes of Loom; it is given what a worker of turns needs, for it imports users' files.

        Raises:
            OSError: the system has no room for a further process, or for its output.
        """
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # stop closes it, and so does its own end
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # the same
        self._found: tuple[Problem, ...] | None = None
        self._process = launcher.start(
            (*loom_command(), "doctor", "--problems", "--json"),
            process_env.of_process(environ, process_env.of_worker(("turn",))),
            outputs=(self._said.fileno(), self._errors.fileno()),
        )

    def problems(self) -> tuple[Problem, ...] | None:
        """What it found; None while it looks."""
        if self._found is None and (status := self._process.poll()) is not None:
            self._found = self._read(status)
        return self._found

    def stop(self) -> None:
        """End it, if it looks still."""
        if self._process.poll() is None:
            # Its group: servers that it started must not outlive it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._said.close()
        self._errors.close()

    def _read(self, status: int) -> tuple[Problem, ...]:
        self._said.seek(0)
        try:
            if status in STATUSES:
                return tuple(Problem.from_json(each) for each in json.loads(self._said.read())["problems"])
        except (ValueError, KeyError, TypeError):  # a user's file ended the process, or wrote between its lines
            status = -1
        self._errors.seek(0)
        last = (self._errors.read().decode("utf-8", "replace").strip().splitlines() or [""])[-1]
        text = f"agents and tools could not be looked at: `loom doctor --problems` ended ({status}) {last}"
        return (Problem(one_line(text, SAID_CHARS), "run it by hand", is_warning=True),)
