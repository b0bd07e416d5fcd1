"""A child process that runs tools, seen from the worker: the messages between the two, its pipes and its output.

The child leads a process group of its own, so that killing the group also ends whatever a tool has started. It holds
the read end of a pipe that nobody writes to; when the worker dies, in whatever way, that pipe closes, and the kernel
kills the group (see ``loom_worker.tools.child_main``).
"""

import contextlib
import contextvars
import json
import logging
import os
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Self

from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json

log = logging.getLogger(__name__)

REAP_S = 5.0
"""For a killed process to be gone; one that waits for a dead disk is left to the system."""
HEAD_BYTES = 4
"""The length of a message, before it."""
MOST_BYTES = 2**32 - 1
"""Of a message."""
LINE_CHARS = 300
MAX_LINES = 100
"""Logged of one call; the rest is left out."""
_READ_BYTES = 1 << 20
_LINE_BYTES = 8 * 1024
"""A longer line counts as several."""


def packed(message: Json) -> bytes:
    """A message as it goes through a pipe: JSON behind its length; lone surrogates survive."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return struct.pack(">I", len(body)) + body


def unpacked(read: Callable[[int], bytes], *, most_bytes: int = MOST_BYTES) -> Json | None:
    """The next message; None at the end of the pipe, even in the middle of a message.

    Args:
        read: returns exactly so many bytes, fewer only at the end.

    Raises:
        ValueError: it is longer than most_bytes, or not a JSON object.
    """
    head = read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    (size_bytes,) = struct.unpack(">I", head)
    if size_bytes > most_bytes:
        raise ValueError(f"a message of {size_bytes:,} bytes, at most {most_bytes:,} are read")
    body = read(size_bytes)
    if len(body) < size_bytes:
        return None
    message = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise ValueError("a message must be a JSON object")
    return message


@dataclass(frozen=True, slots=True)
class Program:
    """What a child runs."""

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    """Its whole environment."""


class Child:
    """A running child; used by one thread at a time."""

    program: Program | None = None

    @classmethod
    def of(cls, program: Program) -> Self:
        """Start one; raises what the constructor raises."""
        child = cls(program.command, program.environ)
        child.program = program
        return child

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start it; its last argument is the number of the pipe that closes when the worker dies.

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
        self._output = CapturedOutput(err)
        self._pipes = Pipes(into.fileno(), out.fileno(), self.pid)
        self.knows: set[str] = set()
        """Origins of the tools that it has built."""
        self.idle_since_s = 0.0
        self.status: int | None = None
        """Its exit status once it has ended, negative for a signal."""

    def ask(self, request: Json, timeout_s: float) -> None:
        """Send a request.

        Raises:
            Late: the child does not read.
            Dead: there is no child.
        """
        self._output.begins(request["tool"])
        self._pipes.write(packed(request), time.monotonic() + timeout_s)

    def answer(self, timeout_s: float, most_bytes: int) -> Json:
        """The next message.

        Raises:
            Late: there was none in time.
            Dead: the child ended, or sent something other than a message of at most so many bytes.
        """
        read = partial(self._pipes.read, deadline_s=time.monotonic() + timeout_s)
        try:
            message = unpacked(read, most_bytes=most_bytes)
        except ValueError as error:
            raise Dead(str(error)) from error
        if message is None:
            raise Dead("it ended")
        return message

    @property
    def has_ended(self) -> bool:
        """True once it is dead, as far as the system knows."""
        return self._pipes.has_ended()

    def shoot(self) -> None:
        """Send SIGKILL to its whole group; only before ``end``: until then no other process can get that number."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it and everything it started, and release its resources."""
        self.shoot()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self._pipes.has_ended(REAP_S) else REAP_S)
        self.status = self._process.returncode
        self._pipes.close()
        for end in self._ends:
            end.close()
        os.close(self._life)


class Late(Exception):
    """The deadline passed first."""


class Dead(Exception):
    """The child ended, or sent something that is not a message."""


class Pipes:
    """The two pipes of a child; used by one thread at a time."""

    def __init__(self, into: int, out: int, pid: int) -> None:
        self._into, self._out = into, out
        for descriptor in (into, out):
            os.set_blocking(descriptor, False)
        # Processes that a tool forked hold the pipes open too, so their end would show a death too late.
        self._process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def close(self) -> None:
        """Close what was opened here; the pipes belong to others."""
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def has_ended(self, wait_s: float = 0.0) -> bool:
        """True once the child is dead, as far as the system knows."""
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
                if has_ended:  # and everything it had written is read
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


class CapturedOutput:
    """Logs a child's standard error for as long as anybody holds it open; unread, it would block a tool that prints."""

    def __init__(self, err: IO[bytes]) -> None:
        """Start reading; the file is closed when it has ended."""
        self._err = err
        self._tool, self._lines = "process", 0
        self._caller = contextvars.copy_context()
        threading.Thread(target=self._listen, name="what tools print", daemon=True).start()

    def begins(self, tool: str) -> None:
        """Log what is read from now on as this tool's."""
        self._tool, self._lines = tool, 0
        self._caller = contextvars.copy_context()  # of the call's thread: what a log line is about

    def _listen(self) -> None:
        with self._err, open(self._err.fileno(), "rb", closefd=False) as err:
            while raw := err.readline(_LINE_BYTES):
                text = one_line(raw.decode("utf-8", "replace"), LINE_CHARS)
                self._lines += bool(text)
                if text and self._lines <= MAX_LINES:
                    self._caller.run(log.info, "tool %s: %s", self._tool, text)
                elif text and self._lines == MAX_LINES + 1:
                    text = "tool %s prints too much: the rest of this call's output is left out"
                    self._caller.run(log.warning, text, self._tool)
