"""A child process that runs tools, seen from the worker: it is asked, it answers, or it is killed.

The child leads a process group of its own, so that killing the group ends also what a tool has started. It holds the
read end of a pipe that nobody writes to; when the worker dies, in whatever way, that pipe closes, and the kernel kills
the group (see ``loom_worker.tools.child_main``).
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from loom_worker.core.values.json import Json
from loom_worker.tools import wire
from loom_worker.tools.captured_output import Heard
from loom_worker.tools.pipes import Dead, Pipes

REAP_S = 5.0
"""For a killed process to be gone; one that waits for a dead disk is left to the system."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a child runs."""

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    """All that it finds in its environment."""


class Child:
    """A running child; used by one thread at a time."""

    program: Program | None = None

    @classmethod
    def of(cls, program: Program) -> Self:
        """Start one; raises as the constructor."""
        child = cls(program.command, program.environ)
        child.program = program
        return child

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start it; the number of the pipe that tells of the worker's death is its last argument.

        Raises:
            OSError: the system has no room for another process.
        """
        read_end, self._life = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, str(read_end)],
                env=dict(environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(read_end,),
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            os.close(self._life)
            raise
        finally:
            os.close(read_end)
        self.pid = self._process.pid
        ends = (self._process.stdin, self._process.stdout, self._process.stderr)
        into, out, err = (end for end in ends if end is not None)
        self._ends = [into, out]
        self._heard = Heard(err)
        self._pipes = Pipes(into.fileno(), out.fileno(), self.pid)
        self.knows: set[str] = set()
        """Origins whose tools it has built."""
        self.idle_since_s = 0.0
        self.status: int | None = None
        """Once it is ended: its exit status, negative for a signal."""

    def ask(self, request: Json, timeout_s: float) -> None:
        """Send a request.

        Raises:
            Late: the child does not read.
            Dead: there is no child.
        """
        self._heard.begins(request["tool"])
        self._pipes.write(wire.packed(request), time.monotonic() + timeout_s)

    def answer(self, timeout_s: float, most_bytes: int) -> Json:
        """The next message.

        Raises:
            Late: there was none in time.
            Dead: the child ended, or said what is no message of so many bytes at most.
        """
        read = partial(self._pipes.read, deadline_s=time.monotonic() + timeout_s)
        try:
            message = wire.unpacked(read, most_bytes=most_bytes)
        except ValueError as error:
            raise Dead(str(error)) from error
        if message is None:
            raise Dead("it ended")
        return message

    @property
    def has_ended(self) -> bool:
        """True once it is dead, as far as the system tells."""
        return self._pipes.has_ended()

    def shoot(self) -> None:
        """SIGKILL, to its whole group; only while it is not ended: until then nobody else can have that number."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it and all that it has started, and let go of all that it had."""
        self.shoot()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self._pipes.has_ended(REAP_S) else REAP_S)
        self.status = self._process.returncode
        self._pipes.close()
        for end in self._ends:
            end.close()
        os.close(self._life)
