"""A child process that runs tools, seen from the worker: it is asked, it answers, or it is killed.

The child leads a process group of its own, so that killing the group ends also what a tool has started. It holds the
read end of a pipe that nobody writes to; when the worker dies, in whatever way, that pipe closes, and the kernel kills
the group (see ``loom_worker.tools.child_main``).
"""

import contextlib
import logging
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Self

from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json
from loom_worker.tools import wire

log = logging.getLogger(__name__)

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
        self._heard = CapturedOutput(err)
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


_READ_BYTES = 1 << 20


class Late(Exception):
    """The deadline passed first."""


class Dead(Exception):
    """The child ended, or said what is no message."""


class Pipes:
    """The two pipes of a child; used by one thread at a time."""

    def __init__(self, into: int, out: int, pid: int) -> None:
        self._into, self._out = into, out
        for descriptor in (into, out):
            os.set_blocking(descriptor, False)
        # What a tool has forked holds the pipes open too, so their end alone would tell of a death too late.
        self._process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def close(self) -> None:
        """Let go of what was opened here; the pipes belong to others."""
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def has_ended(self, wait_s: float = 0.0) -> bool:
        """True once the child is dead, as far as the system tells."""
        if self._process is None:
            return False
        return bool(_ready((self._process, select.POLLIN), timeout_s=wait_s))

    def write(self, raw: bytes, deadline_s: float) -> None:
        """Write all of it.

        Args:
            deadline_s: of ``time.monotonic``.

        Raises:
            Late: the child does not read.
            Dead: there is no child.
        """
        left = memoryview(raw)
        while left:
            try:
                left = left[os.write(self._into, left) :]
            except BlockingIOError:
                self._wait(self._into, select.POLLOUT, deadline_s)
            except BrokenPipeError as error:
                raise Dead("it reads no more") from error

    def read(self, size_bytes: int, deadline_s: float) -> bytes:
        """Read exactly so many bytes.

        Raises:
            Late: they did not come in time.
            Dead: they will not come any more.
        """
        found = bytearray()
        has_ended = False
        while len(found) < size_bytes:
            try:
                piece = os.read(self._out, min(size_bytes - len(found), _READ_BYTES))
            except BlockingIOError:
                if has_ended:  # and what it had written before is read
                    raise Dead("it ended") from None
                has_ended = self._wait(self._out, select.POLLIN, deadline_s)
                continue
            if not piece:
                raise Dead("it ended")
            found += piece
        return bytes(found)

    def _wait(self, descriptor: int, event: int, deadline_s: float) -> bool:
        """Wait until there is something to do; True if the child has ended."""
        watched = [(descriptor, event)]
        if self._process is not None:
            watched.append((self._process, select.POLLIN))
        left_s = deadline_s - time.monotonic()
        ready = _ready(*watched, timeout_s=left_s) if left_s > 0 else set()
        if not ready:
            raise Late
        return self._process in ready


def _ready(*watched: tuple[int, int], timeout_s: float) -> set[int | None]:
    poll = select.poll()
    for descriptor, event in watched:
        poll.register(descriptor, event)
    return {descriptor for descriptor, _ in poll.poll(max(0, timeout_s) * 1000)}


LINE_CHARS = 300
MAX_LINES = 100
"""Logged of one call; more are left out."""
_READ_BYTES = 8 * 1024
"""Of a line; what follows counts as another."""


class CapturedOutput:
    """Reads a child's standard error for as long as anybody has it open: else a tool that prints would stand still."""

    def __init__(self, err: IO[bytes]) -> None:
        """Begin to read; the file is closed when it has ended."""
        self._err = err
        self._tool, self._lines = "process", 0
        threading.Thread(target=self._listen, name="what tools print", daemon=True).start()

    def begins(self, tool: str) -> None:
        """What is read from now on is of this tool's call."""
        self._tool, self._lines = tool, 0

    def _listen(self) -> None:
        with self._err, open(self._err.fileno(), "rb", closefd=False) as err:
            while raw := err.readline(_READ_BYTES):
                self._hear(one_line(raw.decode("utf-8", "replace"), LINE_CHARS))

    def _hear(self, text: str) -> None:
        self._lines += bool(text)
        if text and self._lines <= MAX_LINES:
            log.info("tool %s: %s", self._tool, text)
        elif text and self._lines == MAX_LINES + 1:
            log.warning("tool %s prints too much: the further lines of this call are left out", self._tool)
